#include "fakequant/reference/kernels/kernels.h"

namespace fq {
namespace cpu {
namespace {

constinit const detail::ReferenceKernels reference_table{
#define FQ_KERNEL(result, name, parameters) .name = name,
#include "fakequant/reference/kernels/kernel_list.def"
};

}  // namespace
}  // namespace cpu

namespace detail {

const ReferenceKernels& ReferenceKernels::of(Device device) {
  if (!device.is_cuda()) return cpu::reference_table;
  if (cuda::reference_table == nullptr) throw_no_cuda();
  return *cuda::reference_table;
}

}  // namespace detail
}  // namespace fq
