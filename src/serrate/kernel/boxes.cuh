namespace sr {

// A box that is copied to shared memory, row by row, by all threads of a block together. Rows that are wholly inside of
// the tensor, and begin at a multiple of 16 bytes, are left to the copy engine; of others the threads copy what there is,
// and fill the rest with 0. After `wait` and a barrier all threads may read the box.
struct BoxCopy {
  unsigned barrier;  // the address of the barrier at which the engine reports the bytes that have arrived
  int thread, threads;

  __device__ inline BoxCopy(int number, int count) : thread(number), threads(count) {
    __shared__ unsigned long long memory;
    barrier = static_cast<unsigned>(__cvta_generic_to_shared(&memory));
    if (thread == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // what threads did there comes before the engine
    __syncthreads();
  }

  template <int Width, typename T, typename Index>
  __device__ inline void row(T* to, const T* from, Index there) const {
    constexpr unsigned bytes = Width * sizeof(T);
    if (there >= Width && reinterpret_cast<unsigned long long>(from) % 16 == 0) {
      if (thread == 0) {
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                static_cast<unsigned>(__cvta_generic_to_shared(to))),
            "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
            : "memory");
      }
    } else {
      for (int k = thread; k < Width; k += threads) to[k] = k < there ? from[k] : T(0.0f);
    }
  }

  __device__ inline void wait() const {
    if (thread == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
    unsigned done = 0;
    while (!done) {
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(barrier)
          : "memory");
    }
    __syncthreads();  // before the barrier is made anew
    if (thread == 0) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
  }
};

}  // namespace sr
