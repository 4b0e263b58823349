#pragma once

/// What batch normalization reads, floats or sums nobody has rounded, and the numbers of a pass.

#include "fakequant/core/backend/batch_norm_numbers.h"
#include "fakequant/core/variable.h"

namespace fq::detail {

/// x = (values + bias[c]) * scale[c], or the values themselves where scale is undefined. Kernels take them
/// with the channels innermost; numbers of known statistics need no order.
struct NormRows {
  Tensor values;
  Tensor bias, scale;

  /// Of floats [N, C], [N, C, L], [N, C, H, W] or [N, C, D, H, W].
  [[nodiscard]] static NormRows of(const Tensor& floats);
  [[nodiscard]] static NormRows of(const ProductSums& sums);

  [[nodiscard]] bool are_sums() const { return scale.defined(); }
  [[nodiscard]] std::int64_t channels() const { return values.dim(1); }
  [[nodiscard]] std::int64_t count() const { return channels() == 0 ? 0 : values.numel() / channels(); }
  /// What is computed in.
  [[nodiscard]] DType dtype() const { return are_sums() ? DType::f32 : values.dtype(); }
  [[nodiscard]] Device device() const { return values.device(); }
  [[nodiscard]] NormGrid grid() const { return {{bias, 0.0}, {scale, 1.0}}; }
};

/// The sums of products that a whole layer gives, axis 1; null for any other value.
[[nodiscard]] const ProductSums* product_sums_of(const Variable& x);
/// The same where their channels are innermost.
[[nodiscard]] const ProductSums* normalizable_sums(const Variable& x);
/// The same where they say what they were made of, wherever their channels are.
[[nodiscard]] const ProductSums* foldable_sums(const Variable& x);
/// [N, C] as it is, all else as an image channels_last: [N, C, L] of height 1, [N, C, D, H, W] of D * H rows.
[[nodiscard]] Tensor channels_inner(const Tensor& x);
/// Whether `channels_inner` leaves a value of that shape in it.
[[nodiscard]] inline bool is_channels_inner(const Shape& shape) {
  return shape.size() == 2 || shape.size() == 4;
}

/// Where the moments come from. `mean` and `variance` are the running ones of x: training moves them,
/// running = (1 - momentum) * running + momentum * batch.
struct NormStatistics {
  Tensor mean, variance;
  bool training;
  double momentum, eps;
  const ProductOrigin* origin;  ///< of sums that the layer with the norm folded into it would give, or null
};

/// The numbers of a pass, of x's dtype but `inverse`.
struct NormNumbers {
  Tensor coefficients;  ///< [3, C]: center, factor and shift of y = (x - center) * factor + shift; of sums y
                        ///< = sum * factor + shift
  Tensor inverse;       ///< f64 [C], 1 / sqrt(var + eps)
  bool of_batch;        ///< the moments are x's own
  Tensor folded;        ///< f32 [2, C]: factor and shift of sums as the folded layer has them, or undefined
  Tensor bias_codes;    ///< i32 [C], with them

  /// Throws ArgumentError when training on one row.
  [[nodiscard]] static NormNumbers of(const NormRows& x, const Tensor& gamma, const Tensor& beta,
                                      NormStatistics statistics);
  [[nodiscard]] Tensor center() const { return coefficients.slice(0, 1); }
};

}  // namespace fq::detail
