// Layer norm over features, a row for each 32 threads, four rows to a block.
// Launched as ((n + 3) / 4, 1, 1) blocks of (32, 4, 1) threads.

extern "C" __global__ void __launch_bounds__(128) layer_norm_cuda_(
    const float* __restrict__ x_,  // [n_ * 64]
    const float* __restrict__ w_,  // [64]
    const float* __restrict__ b_,  // [64]
    float* __restrict__ y_,  // [n_ * 64]
    int64_t n_) {
  const int64_t cr_outer_ = blockIdx.x;  // cr of y, by 4, of (n_ + 3) / 4
  const int64_t cr_inner_ = threadIdx.y;  // cr of y, within 4, of 4
  const int64_t cr_ = cr_outer_ * 4 + cr_inner_;
  float t3_mean_;
  int64_t t3_count_;
  t3_mean_ = 0.0f;
  t3_count_ = 0;
  float t5_var_;
  float t5_mean_;
  int64_t t5_count_;
  t5_var_ = 0.0f;
  t5_mean_ = 0.0f;
  t5_count_ = 0;
  for (int64_t d_outer_ = 0; d_outer_ < 2; ++d_outer_) {  // d of y, by 32
    const int64_t d_inner_ = threadIdx.x;  // d of y, within 32, of 32
    const int64_t d_ = d_outer_ * 32 + d_inner_;
    const bool inside_ = cr_ < n_;
    if (inside_) {
      const float x_at_ = x_[cr_ * 64 + d_];
      const int64_t t3_count_next_ = t3_count_ + 1;
      t3_mean_ += x_at_;
      t3_count_ = t3_count_next_;
      const float t5_var_term_ = x_at_ - t5_mean_;
      const int64_t t5_var_term2_ = t5_count_ + 1;
      const float t5_var_term3_ = t5_mean_ + t5_var_term_ / float(t5_var_term2_);
      t5_var_ += t5_var_term_ * (x_at_ - t5_var_term3_);
      t5_mean_ = t5_var_term3_;
      t5_count_ = t5_var_term2_;
    }
  }
  {
    // t3_mean_, t3_count_: combined over threadIdx.x
    struct State {
      float t3_mean_;
      int64_t t3_count_;
    };
    const auto combine = [=](State left, State right) {
      return State{left.t3_mean_ + right.t3_mean_, left.t3_count_ + right.t3_count_};
    };
    const State state = sr::adjacent_reduce<128, 32>(State{t3_mean_, t3_count_}, int(threadIdx.y) * 32 + int(threadIdx.x), combine);
    t3_mean_ = state.t3_mean_;
    t3_count_ = state.t3_count_;
  }
  t3_mean_ /= float(t3_count_);
  {
    // t5_var_, t5_mean_, t5_count_: combined over threadIdx.x
    struct State {
      float t5_var_;
      float t5_mean_;
      int64_t t5_count_;
    };
    const auto combine = [=](State left, State right) {
      return State{left.t5_count_ == 0 ? right.t5_var_ : right.t5_count_ == 0 ? left.t5_var_ : left.t5_var_ + right.t5_var_ + (right.t5_mean_ - left.t5_mean_) * (right.t5_mean_ - left.t5_mean_) * (float(left.t5_count_) * (float(right.t5_count_) / float(left.t5_count_ + right.t5_count_))), left.t5_count_ == 0 ? right.t5_mean_ : right.t5_count_ == 0 ? left.t5_mean_ : left.t5_mean_ + (right.t5_mean_ - left.t5_mean_) * (float(right.t5_count_) / float(left.t5_count_ + right.t5_count_)), left.t5_count_ + right.t5_count_};
    };
    const State state = sr::adjacent_reduce<128, 32>(State{t5_var_, t5_mean_, t5_count_}, int(threadIdx.y) * 32 + int(threadIdx.x), combine);
    t5_var_ = state.t5_var_;
    t5_mean_ = state.t5_mean_;
    t5_count_ = state.t5_count_;
  }
  t5_var_ /= float(t5_count_);
  float t7_kept_;
  const bool inside_ = cr_ < n_;
  if (inside_) {
    t7_kept_ = rsqrtf(t5_var_ + 1e-05f);
  }
  for (int64_t d_outer_ = 0; d_outer_ < 2; ++d_outer_) {  // d of y, by 32
    const int64_t d_inner_ = threadIdx.x;  // d of y, within 32, of 32
    const int64_t d_ = d_outer_ * 32 + d_inner_;
    if (inside_) {
      y_[cr_ * 64 + d_] = (x_[cr_ * 64 + d_] - t3_mean_) * t7_kept_ * w_[d_] + b_[d_];
    }
  }
}
