#pragma once

/// The two arithmetics of a quantizer, behind one interface.

#include <memory>

#include "fakequant/layers/quantizer/detail/grid.h"

namespace fq {
class WeightCodes;
}

namespace fq::detail {

class QuantizerArithmetic {
 public:
  virtual ~QuantizerArithmetic() = default;
  /// x on the grid, with the gradient of its range. `is_weight`: x has no batch axis.
  [[nodiscard]] virtual Variable quantize(const Variable& x, bool is_weight = false) const = 0;
  /// What that makes of a tensor, as floats, without a gradient.
  [[nodiscard]] virtual Tensor values(const Tensor& x) const = 0;
};

/// Codes on the grid, multiplied as an engine multiplies them.
class DeployedArithmetic : public QuantizerArithmetic {
 public:
  DeployedArithmetic(const QuantParams& params, const QuantizerRange& range,
                     const QuantizerGrid& grid, const WeightCodes& weight)
      : params_(params), range_(range), grid_(grid), weight_(weight) {}
  [[nodiscard]] Variable quantize(const Variable& x, bool is_weight = false) const override;
  [[nodiscard]] Tensor values(const Tensor& x) const override;

 private:
  [[nodiscard]] double gradient_factor(const Variable& x, bool is_weight) const;

  const QuantParams& params_;
  const QuantizerRange& range_;
  const QuantizerGrid& grid_;
  const WeightCodes& weight_;
};

/// ModelOpt's formulas on floats of any type, whose gradient passes through. Blocks are padded and reshaped
/// as it does.
class ReferenceArithmetic : public QuantizerArithmetic {
 public:
  ReferenceArithmetic(const QuantParams& params, const QuantizerRange& range)
      : params_(params), range_(range) {}
  [[nodiscard]] Variable quantize(const Variable& x, bool is_weight = false) const override;
  [[nodiscard]] Tensor values(const Tensor& x) const override;

 private:
  [[nodiscard]] Tensor range_of(const Tensor& values, const Axes& kept) const;
  [[nodiscard]] Variable on_grid(const Variable& x, const Tensor& amax) const;
  [[nodiscard]] Variable in_dynamic_blocks(const Variable& x) const;

  const QuantParams& params_;
  const QuantizerRange& range_;
};

/// The one that the settings name; all arguments outlive it.
[[nodiscard]] std::unique_ptr<QuantizerArithmetic> make_arithmetic(const QuantParams& params,
                                                                   const QuantizerRange& range,
                                                                   const QuantizerGrid& grid,
                                                                   const WeightCodes& weight);

}  // namespace fq::detail
