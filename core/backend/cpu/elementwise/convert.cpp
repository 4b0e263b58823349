#include "fakequant/core/detail/convert.h"

#include <algorithm>

#include "fakequant/core/backend/cpu/elementwise/function_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/channels.h"

namespace fq::cpu {
namespace {

template <class Half>
void narrow(const Tensor& in, Half* out) {
  constexpr std::int64_t part = 16384;
  const std::int64_t count = in.numel();
  const auto* x = static_cast<const float*>(in.raw());
  detail::parallel_for((count + part - 1) / part, count > 4 * part, [&](std::int64_t p) {
    narrow_floats(x + p * part, std::min(part, count - p * part), out + p * part);
  });
}

}  // namespace

void fill(Tensor& out, double value) { detail::fill(out, value); }
void relayout(const Tensor& in, Tensor& out) { detail::relayout(in, out); }

// The two conversions of a training step have vector kernels. Other pairs of dtypes use the generic loop.
void convert(const Tensor& in, Tensor& out) {
  if (in.dtype() == DType::f32 && out.dtype() == DType::bf16)
    return narrow(in, static_cast<bfloat16*>(out.mutable_raw()));
  if (in.dtype() == DType::f32 && out.dtype() == DType::f16)
    return narrow(in, static_cast<float16*>(out.mutable_raw()));
  detail::convert(in, out);
}

}  // namespace fq::cpu
