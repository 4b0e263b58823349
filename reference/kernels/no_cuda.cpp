#include "fakequant/reference/kernels/kernels.h"

namespace fq::cuda {

const detail::ReferenceKernels* const reference_table = nullptr;

}  // namespace fq::cuda
