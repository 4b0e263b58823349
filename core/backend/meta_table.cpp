#include <atomic>

#include "fakequant/core/backend/size_class.h"
#include "fakequant/core/backend/tables.h"

namespace fq::meta {
namespace {

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

MetaCounter counter;

std::int64_t counted(std::size_t bytes) { return static_cast<std::int64_t>(detail::size_class(bytes)); }

void* allocate(std::size_t bytes, Device) {
  counter.add(counted(bytes));
  return nullptr;
}
void deallocate(void*, std::size_t bytes, Device) noexcept { counter.add(-counted(bytes)); }
MemoryStats memory_stats(Device) noexcept { return counter.stats(); }
void reset_peak_memory(Device) noexcept { counter.reset_peak(); }

constexpr detail::Kernels only_memory() {
  detail::Kernels kernels{};
  kernels.allocate = allocate;
  kernels.deallocate = deallocate;
  kernels.memory_stats = memory_stats;
  kernels.reset_peak_memory = reset_peak_memory;
  return kernels;
}

}  // namespace

constinit const detail::Kernels table = only_memory();

}  // namespace fq::meta
