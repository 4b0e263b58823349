#include "fakequant/reference/detail/clipped.h"

#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/tape.h"
#include "fakequant/reference/detail/broadcast.h"
#include "fakequant/reference/detail/float_blocks.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::detail {

void check_floats(const Tensor& x, const char* function) {
  FQ_CHECK(x.defined() && is_floating(x.dtype()) && x.dtype() != DType::f64, function,
           "the input is {}: use f32, f16 or bf16", x.describe());
}

IntFormat integer_codes(int num_bits, bool is_unsigned, bool narrow_range, const char* function) {
  FQ_CHECK(num_bits >= 1 && num_bits <= 16, function, "{} bits: use 1 to 16", num_bits);
  return {num_bits, is_unsigned, narrow_range};
}

// `other` is aligned with x at the last axis: axes that it lacks, or where it has size 1, share its elements.
Shape broadcast_block(const Shape& x, const Shape& other, const char* function) {
  check_broadcast(x, other, function);
  Shape block = x;
  for (std::size_t a = x.size(), k = other.size(); k-- > 0;) {
    --a;
    if (other[k] != 1) block[a] = 1;
  }
  // Block lengths of empty axes must not be 0.
  for (auto& length : block) length = std::max<std::int64_t>(length, 1);
  return block;
}

Tensor comparison_bound(DType dtype, const Tensor& bound) {
  // PyTorch's promotion: a rank-0 f32 tensor takes the 16-bit type of x before the comparison.
  const bool rounded = bound.rank() == 0 && bit_width(dtype) == 16;
  return rounded ? bound.to(dtype).to(DType::f32) : bound.to(DType::f32);
}

Tensor amax_mask(const Tensor& x, const Tensor& amax, const char* function) {
  check_broadcast(x.shape(), amax.shape(), function);
  Tensor mask = Tensor::empty(x.shape(), DType::u1, x.device());
  run(x.device(), &ReferenceKernels::fill_amax_mask, x.to(Layout::row_major),
      comparison_bound(x.dtype(), amax), mask);
  return mask;
}

TracedRange TracedRange::integer(const Amax& amax, const IntFormat& format, bool bias) {
  // Only a trace needs the values.
  if (recorder() == nullptr) return {};
  return {amax.tensor(),
          {{"num_bits", std::int64_t{format.bits}},
           {"unsigned", format.is_unsigned},
           {"narrow_range", format.narrow_range},
           {"bias", bias}}};
}

TracedRange TracedRange::floating(const Amax& amax, bool bias) {
  if (recorder() == nullptr) return {};
  return {amax.defined() ? amax.tensor() : Tensor::scalar(448), {{"bias", bias}}};
}

Variable record_clipped(std::string_view op, const Variable& x, Tensor y, Tensor mask, TracedRange range) {
  std::vector<Variable> inputs{x};
  // Only traces have a range here. It is an input without gradient.
  if (range.amax.defined()) inputs.emplace_back(std::move(range.amax));
  const auto backward = [mask, dtype = x.tensor().dtype()](const Tensor& dy) {
    if (!mask.defined()) return std::vector<Tensor>{dy.to(dtype)};
    return std::vector<Tensor>{apply_mask(dy, mask).to(dtype)};
  };
  return record(op, std::move(y), std::move(inputs), backward, std::move(range.attributes));
}

}  // namespace fq::detail
