#include "fakequant/core/ops/exact_products.h"

#include "fakequant/core/cpu/exact.h"
#include "fakequant/core/cuda/exact.h"

namespace fq::detail {

void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                Tensor& sums) {
  auto* out = static_cast<std::int32_t*>(sums.mutable_raw());
  if (sums.device().is_cuda()) return cuda::exact_gemm(m, n, k, x, w, out, sums.device());
  cpu::exact_gemm(m, n, k, x, w, out);
}

void exact_conv(const ConvShape& shape, bool transposed, const Codes& x, const Codes& w, Tensor& sums) {
  auto* out = static_cast<std::int32_t*>(sums.mutable_raw());
  if (sums.device().is_cuda())
    return (transposed ? cuda::exact_conv_transpose : cuda::exact_conv)(shape, x, w, out, sums.device());
  (transposed ? cpu::exact_conv_transpose : cpu::exact_conv)(shape, x, w, out);
}

}  // namespace fq::detail
