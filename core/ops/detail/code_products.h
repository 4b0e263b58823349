#pragma once

/// Products of codes, forward and backward. The algebra of the backward pass is in the comment on
/// BackwardType.

#include <optional>
#include <string_view>

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/context.h"
#include "fakequant/core/quantized.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/variable.h"

namespace fq::detail {

enum class CodeKind : unsigned char {
  floats,    ///< not both quantized, or not both factors: dequantize
  integers,  ///< of up to 8 bits, one scale and a scale a channel: exact sums
  factors,   ///< sums of their products in f32
};

/// How codes are multiplied as numbers of at most 8 significant bits, which bfloat16 holds: x * w = s_x *
/// s_w[c] * sum f_x*f_w. A factor is the code, with one scale or one for each output channel; or, of blocks
/// whose scales are of few bits, the code times (scale / unit), with s = unit.
[[nodiscard]] CodeKind code_kind(const Variable& x, const Variable& w, int w_axis);
/// Whether the codes are their own factors, with one scale or one along `axis` (-1: none).
[[nodiscard]] bool codes_are_factors(const QuantizedTensor& x, int axis);
/// The scales of the factors: f32, rank 0 or [channels along `axis`].
[[nodiscard]] Tensor factor_scale(const QuantizedTensor& x, int axis);

/// fl(s_x * s_w[c % weights' channels]) for each of `channels`; rank 0 where w has one scale.
[[nodiscard]] Tensor product_scale(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis,
                                   std::int64_t channels);

/// The largest magnitude of a sum of `terms` products. Throws ArgumentError where it leaves int32.
[[nodiscard]] std::int64_t largest_sum(const QuantizedTensor& x, const QuantizedTensor& w, std::int64_t terms,
                                       std::string_view function);

/// The raw codes of an integer format, in memory order.
[[nodiscard]] Codes codes_of(const QuantizedTensor& x, const Tensor& codes);

/// The accumulator of sums whose channels lie along `axis`; `bias` may be undefined.
[[nodiscard]] Accumulator product_sums(Tensor sums, const QuantizedTensor& x, const QuantizedTensor& w,
                                       const Variable& bias, int w_axis, int axis, std::int64_t largest_sum);

/// y[.., c] = fl(y[.., c] * scale[c]) + bias[c], channels innermost in memory.
void scale_products(Tensor& y, const Tensor& scale, const Variable& bias);

/// Returns the factors of the codes as bf16 numbers, stored as bf16 or f32, in the layout of the codes.
[[nodiscard]] Tensor code_factor(const QuantizedTensor& x, int axis, DType dtype);
/// Returns the dtype of factors on the device: bf16 where the device multiplies it, else f32.
[[nodiscard]] DType code_factor_dtype(Device device);

/// Saved values of y[.., c] = s_x * s_w[c] * sum f_x*f_w for the backward pass: codes without masks.
class CodeGradients {
 public:
  /// `w_axis`: of the output channels in w.
  CodeGradients(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis);

  /// Returns the factor of `x` and `w`: dY' as bf16 numbers, or dY itself for `fp32`. Channels innermost.
  /// With `db`, sets db to the sum of dy over all axes except the channels.
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

/// Saved values of a product of floats for the backward pass. A factor that was dequantized keeps its codes.
/// If such codes have at most 8 bits, `bf16` rounds dy and both factors to bf16.
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
