#pragma once

/// What batch normalization reads, floats or sums nobody has rounded, and its statistics. This is
/// not a public header.

#include "fakequant/core/cpu/batch_norm.h"
#include "fakequant/core/variable.h"

namespace fq::detail {

/// Channels innermost: x = (values + bias[c]) * scale[c], or the values themselves where scale is empty.
struct NormRows {
  Tensor values;
  cpu::PerChannel bias, scale;

  /// Of floats [N, C], [N, C, L] or [N, C, H, W].
  [[nodiscard]] static NormRows of(const Tensor& floats);
  [[nodiscard]] static NormRows of(const ProductSums& sums);

  [[nodiscard]] bool are_sums() const { return !scale.empty(); }
  [[nodiscard]] std::int64_t channels() const { return values.dim(1); }
  [[nodiscard]] std::int64_t count() const { return channels() == 0 ? 0 : values.numel() / channels(); }
  [[nodiscard]] double scale_of(std::size_t c) const { return are_sums() ? scale[c] : 1.0; }
  /// A mean of x as one of the values.
  [[nodiscard]] cpu::PerChannel to_values(cpu::PerChannel mean) const;
  /// Of x.
  [[nodiscard]] cpu::Moments moments() const;
};

/// The sums of products that a whole layer gives, channels innermost and axis 1; null for any other value.
[[nodiscard]] const ProductSums* normalizable_sums(const Variable& x);
/// [N, C] as it is, [N, C, L] as [N, C, 1, L] channels_last.
[[nodiscard]] Tensor channels_inner(const Tensor& x);
[[nodiscard]] cpu::PerChannel values_or(const Tensor& tensor, std::int64_t channels, double otherwise);

/// What backward needs besides x and gamma; inverse = 1 / sqrt(var + eps).
struct BatchStatistics {
  cpu::PerChannel mean, inverse;
  bool of_batch;

  /// Those of x, which move the running ones: running = (1 - momentum) * running + momentum * batch; or, when
  /// not training, the running ones. Throws ArgumentError when training on one row.
  [[nodiscard]] static BatchStatistics of(const NormRows& x, Tensor& mean, Tensor& variance, bool training,
                                          double momentum, double eps);
};

}  // namespace fq::detail
