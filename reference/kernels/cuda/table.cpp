#include "fakequant/reference/kernels/kernels.h"

namespace fq::cuda {
namespace {

constinit const detail::ReferenceKernels kernels{
#define FQ_KERNEL(result, name, parameters) .name = name,
#include "fakequant/reference/kernels/kernel_list.def"
};

}  // namespace

const detail::ReferenceKernels* const reference_table = &kernels;

}  // namespace fq::cuda
