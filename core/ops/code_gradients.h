#pragma once

/// Products of codes passed backward; not a public header. The algebra is that of ops/backward.h.

#include "fakequant/core/ops/backward.h"
#include "fakequant/core/quantized.h"

namespace fq::detail {

/// The factors (code_products.h) of the codes as bf16 numbers of that type, bf16 or f32; layout of the codes.
[[nodiscard]] Tensor code_factor(const QuantizedTensor& x, int axis, DType dtype);
/// What floats of codes are multiplied as: bf16 where the device has it, else f32.
[[nodiscard]] DType code_factor_dtype(Device device);

/// What backward keeps of y[.., c] = s_x * s_w[c] * sum f_x*f_w: the codes, not their masks.
class CodeGradients {
 public:
  /// `w_axis`: of the output channels in w.
  CodeGradients(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis);

  /// What is multiplied with `x` and `w`: dY' as bf16 numbers, or dY as it is for `fp32`. Channels innermost.
  [[nodiscard]] Tensor dy(const Tensor& dy) const;
  [[nodiscard]] Tensor x() const;
  [[nodiscard]] Tensor w() const;
  /// The product of `dy` and `x` to the gradient of the weight, in place.
  void finish_dw(Tensor& dw) const;

 private:
  QuantizedTensor x_, w_;
  int w_axis_;
  BackwardType type_;
};

}  // namespace fq::detail
