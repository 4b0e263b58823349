#include "fakequant/reference/kernels/kernels.h"

namespace fq {
namespace cpu {
namespace {

// The list expands to one designated initializer per kernel. A kernel without an implementation here does
// not link.
constinit const detail::ReferenceKernels reference_table{
#define FQ_KERNEL(result, name, parameters) .name = name,
#include "fakequant/reference/kernels/kernel_list.def"
};

}  // namespace
}  // namespace cpu

namespace detail {

const ReferenceKernels& ReferenceKernels::of(Device device) {
  const ReferenceKernels* table = device.is_cuda() ? cuda::reference_table : &cpu::reference_table;
  if (table == nullptr) throw_no_cuda();
  return *table;
}

}  // namespace detail
}  // namespace fq
