// This file keeps the memory of large results that are gone for the next ones, since new pages take several times as
// long as writing them. It hands memory out as DLPack describes it, which every version of torch understands.
//
// Blocks that nobody uses are idle. Together they never have more bytes than a limit; the one that was idle for longest
// goes back to the system first. A block is given back by whatever thread frees the last tensor over it.

#include <pthread.h>

#include <cstdlib>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <new>

#include "common.h"

namespace {

// The layout of DLPack's structures, version 0, which never changes.
struct Device {
  int32_t type, id;
};

struct DataType {
  uint8_t code, bits;
  uint16_t lanes;
};

struct Description {
  void* data;
  Device device;
  int32_t axes;
  DataType type;
  int64_t *sizes, *strides;
  uint64_t offset;
};

struct Managed {
  Description tensor;
  void* context;
  void (*deleter)(Managed*);
};

constexpr int32_t kCpu = 1;
constexpr int64_t kPage = int64_t(1) << 21;  // Blocks begin at a large page.
constexpr int64_t kParts = 8;                // There are this many sizes of blocks between a power of two and the next.

// Returns the size of the block for a number of bytes: at most an eighth more, in whole pages of 4 KB.
int64_t rounded(int64_t bytes) {
  int64_t step = 4096;
  while (step * 2 * kParts <= bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

// Blocks are mapped and not taken from malloc, so that they go back to the system when they are freed.
char* map_block(int64_t bytes) {
  char* begin = static_cast<char*>(
      mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (begin == MAP_FAILED) return nullptr;
  char* block = begin + (-reinterpret_cast<uintptr_t>(begin) & (kPage - 1));
  if (block > begin) munmap(begin, block - begin);
  munmap(block + bytes, begin + kPage - block);
#ifdef MADV_HUGEPAGE
  madvise(block, bytes, MADV_HUGEPAGE);  // It is written many times, which large pages make faster.
#endif
  return block;
}

struct Block {
  char* memory;
  int64_t bytes;
};

class Pool {
 public:
  // Returns a block of at least `bytes` bytes; its memory is null if there is none, or if nothing may be kept.
  Block take(int64_t bytes) {
    const int64_t wanted = rounded(bytes);
    {
      const std::lock_guard<std::mutex> guard(lock_);
      if (limit_ == 0) return {nullptr, 0};
      // The least size that is enough, unless it is so large that others need it more.
      const auto found = by_size_.lower_bound(wanted);
      if (found != by_size_.end() && found->first <= wanted + wanted / 4) {
        const auto latest = std::prev(by_size_.upper_bound(found->first));  // It may still be in the caches.
        const Block block = *latest->second;
        idle_.erase(latest->second);
        by_size_.erase(latest);
        idle_bytes_ -= block.bytes;
        used_bytes_ += block.bytes;
        ++reused_;
        return block;
      }
    }
    Block block{map_block(wanted), wanted};
    if (block.memory == nullptr) {
      shrink(0);
      block.memory = map_block(wanted);
    }
    if (block.memory != nullptr) {
      const std::lock_guard<std::mutex> guard(lock_);
      used_bytes_ += block.bytes;
      ++mapped_;
    }
    return block;
  }

  // Takes a block back. The system gets it if it is larger than the limit, or if there is no memory to remember it.
  void give(const Block& block) noexcept {
    bool kept = false;
    Idle gone;
    {
      const std::lock_guard<std::mutex> guard(lock_);
      used_bytes_ -= block.bytes;
      if (block.bytes <= limit_) {
        forget(limit_ - block.bytes, gone);
        kept = keep(block);
      }
    }
    if (!kept) munmap(block.memory, block.bytes);
    unmap(gone);
  }

  // Gives idle blocks back to the system until at most `bytes` bytes are left. Returns how many bytes went back.
  int64_t shrink(int64_t bytes) noexcept {
    Idle gone;
    {
      const std::lock_guard<std::mutex> guard(lock_);
      forget(bytes, gone);
    }
    return unmap(gone);
  }

  void set_limit(int64_t bytes) noexcept {
    {
      const std::lock_guard<std::mutex> guard(lock_);
      limit_ = bytes;
    }
    shrink(bytes);
  }

  void report(int64_t* out) {
    const std::lock_guard<std::mutex> guard(lock_);
    const int64_t found[] = {limit_, idle_bytes_, used_bytes_, mapped_, reused_};
    std::copy(std::begin(found), std::end(found), out);
  }

  std::mutex& lock() { return lock_; }

 private:
  using Idle = std::list<Block>;  // The one that was idle for longest comes first.

  bool keep(const Block& block) noexcept {
    try {
      idle_.push_back(block);
      by_size_.emplace(block.bytes, std::prev(idle_.end()));
    } catch (const std::bad_alloc&) {
      if (idle_.size() > by_size_.size()) idle_.pop_back();
      return false;
    }
    idle_bytes_ += block.bytes;
    return true;
  }

  // Moves idle blocks to `gone` until at most `bytes` bytes are left.
  void forget(int64_t bytes, Idle& gone) noexcept {
    while (idle_bytes_ > bytes) {
      auto each = by_size_.lower_bound(idle_.front().bytes);
      while (each->second != idle_.begin()) ++each;
      by_size_.erase(each);
      idle_bytes_ -= idle_.front().bytes;
      gone.splice(gone.end(), idle_, idle_.begin());
    }
  }

  // This takes long, so that it happens outside of the lock.
  static int64_t unmap(const Idle& gone) noexcept {
    int64_t bytes = 0;
    for (const Block& block : gone) {
      munmap(block.memory, block.bytes);
      bytes += block.bytes;
    }
    return bytes;
  }

  std::mutex lock_;
  Idle idle_;
  std::multimap<int64_t, Idle::iterator> by_size_;
  int64_t limit_ = 0, idle_bytes_ = 0, used_bytes_ = 0, mapped_ = 0, reused_ = 0;
};

// The pool is never destroyed: tensors are freed until the process ends. While a process forks, no thread is inside of
// the pool, so that the child finds it whole; idle blocks are the child's own copies then.
Pool& pool() {
  static Pool* const made = [] {
    pthread_atfork([] { pool().lock().lock(); }, [] { pool().lock().unlock(); }, [] { pool().lock().unlock(); });
    return new Pool;
  }();
  return *made;
}

struct Result {
  Managed managed;
  Block block;
  int64_t sizes[1];  // the sizes, then the strides
};

void give_back(Managed* managed) {
  Result* result = static_cast<Result*>(managed->context);
  pool().give(result->block);
  std::free(result);
}

// Returns the address of DLPack's description of a new tensor with any content, or 0 if there is no memory. `type` has
// DLPack's code of the kind of number, and its bits from the eighth on.
int64_t take(int64_t bytes, int64_t type, int64_t axes, const int64_t* sizes_and_strides) {
  const Block block = pool().take(bytes);
  if (block.memory == nullptr) return 0;
  Result* result = static_cast<Result*>(std::malloc(sizeof(Result) + 2 * axes * sizeof(int64_t)));
  if (result == nullptr) {
    pool().give(block);
    return 0;
  }
  std::copy(sizes_and_strides, sizes_and_strides + 2 * axes, result->sizes);
  const DataType number{static_cast<uint8_t>(type & 0xff), static_cast<uint8_t>(type >> 8), 1};
  result->managed.tensor = {block.memory, {kCpu, 0},     static_cast<int32_t>(axes), number, result->sizes,
                            result->sizes + axes, 0};
  result->managed.context = result;
  result->managed.deleter = give_back;
  result->block = block;
  return reinterpret_cast<int64_t>(&result->managed);
}

int64_t drop(Managed* managed) {
  managed->deleter(managed);
  return 0;
}

int64_t set_limit(int64_t bytes) {
  pool().set_limit(bytes);
  return 0;
}

int64_t shrink(int64_t bytes) { return pool().shrink(bytes); }

int64_t report(int64_t* out) {
  pool().report(out);
  return 0;
}

}  // namespace

SERRATE_EXPORT(memory_take, take)
SERRATE_EXPORT(memory_drop, drop)
SERRATE_EXPORT(memory_set_limit, set_limit)
SERRATE_EXPORT(memory_shrink, shrink)
SERRATE_EXPORT(memory_report, report)
