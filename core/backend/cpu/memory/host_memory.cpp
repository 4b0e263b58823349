#include "fakequant/core/backend/cpu/memory/host_memory.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include <pthread.h>
#include <sys/mman.h>

#include "fakequant/core/detail/check.h"

namespace fq::cpu {
namespace {

using detail::block_alignment, detail::size_class;

// A fresh 13 MB tensor costs 14 times as much to write as reused memory on huge pages. Blocks are therefore
// kept until release_cached_memory.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSmall = std::size_t{16} << 10;

/// Returns the number of blocks to allocate at once. Small blocks need spare ones: threads and scratch memory
/// take them in a different order in each step.
int blocks_at_once(std::size_t bytes) { return bytes <= kSmall ? 4 : 1; }

// Free blocks by size class. One mutex suffices: operators allocate a few blocks per call.
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
      // The list could not grow: the block returns to the system.
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

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  void* fresh(std::size_t bytes) {
    const std::size_t alignment = bytes >= kHugePage ? kHugePage : block_alignment;
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

/// Never destroyed, because tensors with static lifetime may outlive other static objects.
Arena& arena() {
  static auto* const instance = [] {
    auto* made = new Arena;
    // Without these handlers, a child forked while another thread allocates would find the mutex locked
    // forever.
    pthread_atfork([] { arena().lock(); }, [] { arena().unlock(); }, [] { arena().unlock(); });
    return made;
  }();
  return *instance;
}

std::atomic<bool> poison{false};

}  // namespace

void* allocate(std::size_t bytes, Device) {
  const std::size_t size = size_class(bytes);
  void* block = arena().take(size);
  // For tests: 0xff bytes are NaN in f64, f32, f16 and bf16, so a read before the first write is visible.
  if (poison.load(std::memory_order_relaxed)) std::memset(block, 0xff, size);
  return block;
}

void deallocate(void* pointer, std::size_t bytes, Device) noexcept {
  if (pointer != nullptr) arena().give(pointer, size_class(bytes));
}

MemoryStats memory_stats(Device) noexcept { return arena().stats(); }
void reset_peak_memory(Device) noexcept { arena().reset_peak(); }
void release_cached_memory() noexcept { arena().trim(); }

void touched(const Storage&, const void*, bool) noexcept {}
void synchronize_device(Device) {}

void fill_bytes(void* pointer, int value, std::size_t bytes, Device) {
  if (bytes > 0) std::memset(pointer, value, bytes);
}
void copy_bytes(void* to, Device, const void* from, Device, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void set_poison(bool on) noexcept { poison.store(on, std::memory_order_relaxed); }

}  // namespace fq::cpu
