#include "fakequant/core/backend/kernels.h"

#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/tables.h"
#include "fakequant/core/error.h"

namespace fq::detail {

const Kernels* find_kernels(Device device) noexcept {
  if (device.is_cpu()) return &cpu::table;
  return device.is_meta() ? &meta::table : cuda::table;
}

const Kernels& Kernels::of(Device device) {
  const Kernels* found = find_kernels(device);
  if (found == nullptr) throw_no_cuda();
  return *found;
}

const RangeKernels& RangeKernels::of(Device device) {
  return column_of(device, cpu::range_table, cuda::range_table);
}

const RankKernels& RankKernels::of(Device device) {
  return column_of(device, cpu::rank_table, cuda::rank_table);
}

void throw_no_cuda() { throw BackendError("[cuda] " + cuda::why_unusable()); }

int gpu_count() noexcept { return cuda::device_count(); }
std::string describe_gpu(Device device) { return cuda::describe_device(device); }

}  // namespace fq::detail
