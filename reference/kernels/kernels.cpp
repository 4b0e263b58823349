#include "fakequant/reference/kernels/kernels.h"

namespace fq::detail {

const ReferenceKernels& ReferenceKernels::of(Device device) {
  return column_of(device, cpu::reference_table, cuda::reference_table);
}

}  // namespace fq::detail
