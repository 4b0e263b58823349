#pragma once

/// Products passed backward. The algebra is that of BackwardType.

#include <optional>

#include "fakequant/core/context.h"
#include "fakequant/core/quantized.h"
#include "fakequant/core/tape.h"

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
  /// With `db`, that may be made along with it: the sum of dy over all but its channels.
  [[nodiscard]] Tensor dy(const Tensor& dy, Tensor* db = nullptr) const;
  [[nodiscard]] Tensor x() const;
  [[nodiscard]] Tensor w() const;
  /// The product of `dy` and `x` to the gradient of the weight, in place.
  void finish_dw(Tensor& dw) const;

 private:
  QuantizedTensor x_, w_;
  int w_axis_;
  BackwardType type_;
};

/// What backward keeps of a product of floats of which some were dequantized: those keep their codes. Where
/// one was, of 8 bits or less, `bf16` rounds dy and both factors to bf16.
class FloatGradients {
 public:
  FloatGradients(const Variable& x, const Variable& w);

  [[nodiscard]] bool rounds() const noexcept { return rounds_; }
  [[nodiscard]] Tensor dy(const Tensor& dy, Tensor* db = nullptr) const { return rounded(dy, db); }
  [[nodiscard]] Tensor x() const { return factor(x_); }
  [[nodiscard]] Tensor w() const { return factor(w_); }
  /// Another factor in the same numbers.
  [[nodiscard]] Tensor rounded(const Tensor& t, Tensor* sums = nullptr) const;

 private:
  struct Kept {
    Saved floats;
    std::optional<QuantizedTensor> codes;
    explicit Kept(const Variable& v);
  };
  [[nodiscard]] Tensor factor(const Kept& kept) const;

  Kept x_, w_;
  bool rounds_;
};

}  // namespace fq::detail
