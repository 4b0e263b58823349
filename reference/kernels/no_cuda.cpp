// What kernels/cuda has, for builds without it: an empty column.

#include "fakequant/reference/kernels/kernels.h"

namespace fq::cuda {

const fq::detail::ReferenceKernels* const reference_table = nullptr;

}  // namespace fq::cuda
