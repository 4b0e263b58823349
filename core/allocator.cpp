#include "fakequant/core/allocator.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include <sys/mman.h>

#include "fakequant/core/check.h"
#include "fakequant/core/cuda/runtime.h"

namespace fq {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSmall = std::size_t{16} << 10;

/// Sizes are rounded up to one of 32 steps between powers of two: at most a 32nd of a large block is wasted.
std::size_t size_class(std::size_t bytes) {
  if (bytes <= kAlignment) return kAlignment;
  const std::size_t step = std::max(kAlignment, std::bit_floor(bytes - 1) / 32);
  return (bytes + step - 1) / step * step;
}

/// Threads and scratch memory take small blocks in another order in each step: there are some to spare.
int blocks_at_once(std::size_t bytes) { return bytes <= kSmall ? 4 : 1; }

class Arena {
 public:
  void* take(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    auto& blocks = free_[bytes];
    if (blocks.empty())
      for (int i = 0; i < blocks_at_once(bytes); ++i) blocks.push_back(fresh(bytes));
    void* block = blocks.back();
    blocks.pop_back();
    stats_.in_use += static_cast<std::int64_t>(bytes);
    stats_.peak = std::max(stats_.peak, stats_.in_use);
    return block;
  }

  void give(void* block, std::size_t bytes) noexcept {
    const std::scoped_lock lock(mutex_);
    stats_.in_use -= static_cast<std::int64_t>(bytes);
    try {
      free_[bytes].push_back(block);
    } catch (...) {
      stats_.reserved -= static_cast<std::int64_t>(bytes);
      std::free(block);
    }
  }

  void trim() noexcept {
    const std::scoped_lock lock(mutex_);
    for (auto& [bytes, blocks] : free_) {
      for (void* block : blocks) std::free(block);
      stats_.reserved -= static_cast<std::int64_t>(bytes * blocks.size());
      blocks.clear();
    }
  }

  MemoryStats stats() noexcept {
    const std::scoped_lock lock(mutex_);
    return stats_;
  }

  void reset_peak() noexcept {
    const std::scoped_lock lock(mutex_);
    stats_.peak = stats_.in_use;
  }

 private:
  void* fresh(std::size_t bytes) {
    const std::size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    void* block = nullptr;
    if (posix_memalign(&block, alignment, bytes) != 0)
      throw SystemError(fmt::format("[allocate] the system has no {} bytes left", bytes));
    if (bytes >= kHugePage) madvise(block, bytes, MADV_HUGEPAGE);
    stats_.reserved += static_cast<std::int64_t>(bytes);
    ++stats_.system_calls;
    return block;
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  MemoryStats stats_;
};

class MetaCounter {
 public:
  void add(std::int64_t bytes) noexcept {
    const std::int64_t now = in_use_.fetch_add(bytes) + bytes;
    std::int64_t peak = peak_.load();
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
  }
  [[nodiscard]] MemoryStats stats() const noexcept { return {.in_use = in_use_, .peak = peak_}; }
  void reset_peak() noexcept { peak_ = in_use_.load(); }

 private:
  std::atomic<std::int64_t> in_use_{0}, peak_{0};
};

MetaCounter meta;

/// Never destroyed: tensors with static lifetime may outlive any other static object.
Arena& arena() {
  static auto* instance = new Arena;
  return *instance;
}

std::atomic<bool> poison{false};

}  // namespace

MemoryStats memory_stats(Device device) noexcept {
  if (device.is_cuda()) return cuda::memory_stats(device);
  return device.is_meta() ? meta.stats() : arena().stats();
}
void reset_peak_memory(Device device) noexcept {
  if (device.is_cuda()) return cuda::reset_peak_memory(device);
  device.is_meta() ? meta.reset_peak() : arena().reset_peak();
}
void release_cached_memory() noexcept {
  arena().trim();
  cuda::release_cached_memory();
}

namespace detail {

void* allocate(std::size_t bytes) {
  const std::size_t size = size_class(bytes);
  void* block = arena().take(size);
  if (poison.load(std::memory_order_relaxed)) std::memset(block, 0xff, size);
  return block;
}

void deallocate(void* pointer, std::size_t bytes) noexcept {
  if (pointer != nullptr) arena().give(pointer, size_class(bytes));
}

void count_meta(std::size_t bytes, bool begins) noexcept {
  const auto size = static_cast<std::int64_t>(size_class(bytes));
  meta.add(begins ? size : -size);
}

void set_poison(bool on) noexcept { poison.store(on, std::memory_order_relaxed); }

}  // namespace detail
}  // namespace fq
