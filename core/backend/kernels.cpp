#include "fakequant/core/backend/kernels.h"

#include <atomic>

#include "fakequant/core/backend/cpu/memory/host_memory.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"

namespace fq {
namespace cpu {
namespace {

// The list is included with macros that make one initializer per row. Designated initializers fail to compile
// if the order of the rows and of the members differs.
template <class T>
constexpr detail::UpdateKernels<T> updates{
#define FQ_KERNEL(result, name, parameters)
#define FQ_UPDATE_KERNEL(result, name, parameters) .name = name<T>,
#include "fakequant/core/backend/kernel_list.def"
};

}  // namespace

constinit const detail::Kernels kernel_table{
#define FQ_KERNEL(result, name, parameters) .name = name,
#define FQ_CUDA_KERNEL(result, name, parameters) .name = nullptr,
#include "fakequant/core/backend/kernel_list.def"
    .update_f32 = updates<float>, .update_f64 = updates<double>};

}  // namespace cpu

namespace meta {
namespace {

// The device `meta` allocates nothing and counts bytes: memory plans read the peak of a traced step.
class MetaCounter {
 public:
  void add(std::int64_t bytes) noexcept {
    const std::int64_t now = in_use_.fetch_add(bytes) + bytes;
    std::int64_t peak = peak_.load();
    // Raises the peak unless another thread has raised it further.
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

}  // namespace

// Operators on `meta` compute shapes only and never call a kernel.
constinit const detail::Kernels kernel_table{
#define FQ_KERNEL(result, name, parameters) .name = nullptr,
#define FQ_MEMORY_KERNEL(result, name, parameters) .name = name,
#include "fakequant/core/backend/kernel_list.def"
    .update_f32 = {}, .update_f64 = {}};

}  // namespace meta

namespace detail {

const Kernels* find_kernels(Device device) noexcept {
  if (device.is_cpu()) return &cpu::kernel_table;
  return device.is_meta() ? &meta::kernel_table : cuda::kernel_table;
}

const Kernels& Kernels::of(Device device) {
  const Kernels* found = find_kernels(device);
  if (found == nullptr) throw_no_cuda();
  return *found;
}

void throw_no_cuda() { throw BackendError("[cuda] " + cuda::why_unusable()); }

int gpu_count() noexcept { return cuda::device_count(); }
std::string describe_gpu(Device device) { return cuda::describe_device(device); }

}  // namespace detail
}  // namespace fq
