#pragma once

/// Arithmetics of a quantizer with one interface, and the operations that precede them.

#include <memory>

#include "fakequant/layers/quantizer/detail/grid_cache.h"

namespace fq {
class WeightCodes;
}

namespace fq::detail {

class QuantizerArithmetic {
 public:
  virtual ~QuantizerArithmetic() = default;
  /// Returns x on the grid, with the gradient of its range. `is_weight`: x has no batch axis.
  [[nodiscard]] virtual Variable quantize(const Variable& x, bool is_weight = false) const = 0;
  /// Returns the quantized values of a tensor as floats, without a gradient.
  [[nodiscard]] virtual Tensor values(const Tensor& x) const = 0;
};

/// Codes on the grid of a range, multiplied as an engine multiplies them.
class DeployedArithmetic : public QuantizerArithmetic {
 public:
  DeployedArithmetic(const QuantParams& params, const QuantizerRange& range, const GridCache& grid)
      : params_(params), range_(range), grid_(grid) {}
  [[nodiscard]] Variable quantize(const Variable& x, bool is_weight = false) const override;
  [[nodiscard]] Tensor values(const Tensor& x) const override;

 private:
  [[nodiscard]] double gradient_factor(const Variable& x, bool is_weight) const;

  const QuantParams& params_;
  const QuantizerRange& range_;
  const GridCache& grid_;
};

/// Codes of a weight scheme without a range.
class WeightArithmetic : public QuantizerArithmetic {
 public:
  WeightArithmetic(const QuantParams& params, const GridCache& grid, const WeightCodes& weight)
      : params_(params), grid_(grid), weight_(weight) {}
  [[nodiscard]] Variable quantize(const Variable& x, bool is_weight = false) const override;
  [[nodiscard]] Tensor values(const Tensor& x) const override;

 private:
  [[nodiscard]] QuantizedTensor codes(const Variable& x) const;

  const QuantParams& params_;
  const GridCache& grid_;
  const WeightCodes& weight_;
};

/// ModelOpt's formulas on floats of any type, whose gradient passes through. Blocks are padded and reshaped
/// as in ModelOpt.
class ReferenceArithmetic : public QuantizerArithmetic {
 public:
  ReferenceArithmetic(const QuantParams& params, const QuantizerRange& range)
      : params_(params), range_(range) {}
  [[nodiscard]] Variable quantize(const Variable& x, bool is_weight = false) const override;
  [[nodiscard]] Tensor values(const Tensor& x) const override;

 private:
  [[nodiscard]] Tensor scaled_range(const Tensor& values, const Axes& kept) const;
  [[nodiscard]] Variable quantize_static(const Variable& x, const Tensor& amax) const;
  [[nodiscard]] Variable quantize_dynamic_blocks(const Variable& x) const;

  const QuantParams& params_;
  const QuantizerRange& range_;
};

/// Returns the arithmetic of the parameters. All arguments must outlive it.
[[nodiscard]] std::unique_ptr<QuantizerArithmetic> make_arithmetic(const QuantParams& params,
                                                                   const QuantizerRange& range,
                                                                   const GridCache& grid,
                                                                   const WeightCodes& weight);

/// Returns x * scale in the type of x, rounded once. The result is f32 for a scale of another type and more
/// than 0 axes. The gradient is dy * scale in the type of x. `scale` must broadcast against x, else
/// ArgumentError.
[[nodiscard]] Variable pre_quant_scaled(const Variable& x, const Tensor& scale);
/// Returns a 16-bit tensor as f32, with the gradient in its own type, and another x unchanged.
[[nodiscard]] Variable widen_to_f32(const Variable& x);

}  // namespace fq::detail
