#pragma once

/// Per-channel numbers of batch normalization, for host and device.

#include <cmath>

#include "fakequant/core/numerics/detail/fold_formulas.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// One number per channel, or one for all channels; `otherwise` if undefined.
class ChannelNumbers {
 public:
  /// `numbers` is f32, f64 or i32 [channels] or one element, or undefined.
  ChannelNumbers(const Tensor& numbers, double otherwise)
      : data_(numbers.defined() ? numbers.raw() : nullptr),
        dtype_(numbers.dtype()),
        shared_(numbers.numel() == 1),
        otherwise_(otherwise) {}

  FQ_HD double operator[](std::int64_t c) const {
    const std::int64_t at = shared_ ? 0 : c;
    if (data_ == nullptr) return otherwise_;
    if (dtype_ == DType::f64) return static_cast<const double*>(data_)[at];
    if (dtype_ == DType::f32) return static_cast<double>(static_cast<const float*>(data_)[at]);
    return static_cast<double>(static_cast<const std::int32_t*>(data_)[at]);
  }

 private:
  const void* data_;
  DType dtype_;
  bool shared_;
  double otherwise_;
};

/// Rows of f32 or f64 numbers, one per channel.
class ChannelRows {
 public:
  ChannelRows() = default;
  ChannelRows(Tensor numbers, std::int64_t channels)
      : data_(numbers.defined() ? numbers.mutable_raw() : nullptr),
        wide_(numbers.dtype() == DType::f64),
        channels_(channels) {}

  [[nodiscard]] FQ_HD bool defined() const { return data_ != nullptr; }
  [[nodiscard]] FQ_HD double get(int row, std::int64_t c) const {
    const std::int64_t at = row * channels_ + c;
    return wide_ ? static_cast<const double*>(data_)[at]
                 : static_cast<double>(static_cast<const float*>(data_)[at]);
  }
  FQ_HD void put(int row, std::int64_t c, double value) const {
    const std::int64_t at = row * channels_ + c;
    if (wide_)
      static_cast<double*>(data_)[at] = value;
    else
      static_cast<float*>(data_)[at] = static_cast<float>(value);
  }

 private:
  void* data_ = nullptr;
  bool wide_ = false;
  std::int64_t channels_ = 0;
};

/// Maps the stored values to x = (value + bias[c]) * scale[c].
struct NormGrid {
  ChannelNumbers bias, scale;
};

/// Numbers that give sums the bits of the layer with the batch norm folded into it.
struct NormFolding {
  ChannelNumbers x_scale, amax, bias;  ///< origin of the sums (see ProductOrigin)
  float bound;
  std::int32_t room;    ///< largest magnitude of a bias code
  ChannelRows numbers;  ///< output: factor and shift; undefined without folding
  std::int32_t* codes;  ///< output: bias codes

  FQ_HD void operator()(std::int64_t c, const FoldedChannel& folded) const {
    const FoldedSums sums =
        folded_sums(folded, static_cast<float>(amax[c]), bound, static_cast<float>(x_scale[c]), room);
    numbers.put(0, c, static_cast<double>(sums.factor));
    numbers.put(1, c, static_cast<double>(sums.shift));
    codes[c] = sums.bias;
  }
};

/// Inputs and outputs of the per-channel numbers of a forward pass. Uses the moments of the values, or the
/// running moments of x.
struct BatchNormForward {
  NormGrid grid;
  ChannelNumbers gamma, beta;
  ChannelRows moments;            ///< mean and variance of the values; undefined: use `mean` and `variance`
  ChannelNumbers mean, variance;  ///< running moments of x
  ChannelRows running_mean, running_variance;  ///< updated if defined
  double momentum, unbiased, eps;              ///< `unbiased`: rows / (rows - 1)
  bool are_sums;
  ChannelRows coefficients;  ///< output: center, factor, shift
  ChannelRows inverse;       ///< output: 1 / sqrt(var + eps)
  NormFolding folding;       ///< uses the running moments

  FQ_HD void move(const ChannelRows& running, std::int64_t c, double batch, double factor) const {
    if (running.defined())
      running.put(0, c, (1.0 - momentum) * running.get(0, c) + momentum * factor * batch);
  }

  /// Computes channel c. Floats: y = (x - center) * factor + shift. Sums: y = sum * factor + shift, with the
  /// center in units of the sums.
  FQ_HD void operator()(std::int64_t c) const {
    const double scale = grid.scale[c], bias = grid.bias[c];
    double average = mean[c], spread = variance[c];
    if (moments.defined()) {
      average = (moments.get(0, c) + bias) * scale;
      spread = moments.get(1, c) * (scale * scale);
      move(running_mean, c, average, 1.0);
      move(running_variance, c, spread, unbiased);
    }
    const double root = 1.0 / std::sqrt(spread + eps), factor = gamma[c] * root;
    inverse.put(0, c, root);
    coefficients.put(0, c, are_sums ? average / scale - bias : average);
    coefficients.put(1, c, are_sums ? factor * scale : factor);
    coefficients.put(2, c, are_sums ? beta[c] + (bias * scale - average) * factor : beta[c]);
    if (folding.numbers.defined())
      folding(c, folded_channel(gamma[c], beta[c], average, spread, eps, folding.bias[c]));
  }
};

/// Inputs and outputs of the per-channel numbers of a backward pass, and the gradients of gamma and beta.
struct BatchNormBackward {
  NormGrid grid;
  ChannelNumbers gamma, inverse;
  ChannelRows sums;  ///< sum of dy, and of dy * (value - center)
  double rows;
  bool of_batch;  ///< whether the moments depend on x, so that x gets their gradients too
  /// Output: factor, slope, shift of dx = dy * factor + (value - center) * slope + shift.
  ChannelRows coefficients;
  ChannelRows dgamma, dbeta;  ///< output

  FQ_HD void operator()(std::int64_t c) const {
    const double scale = grid.scale[c], root = inverse[c], factor = gamma[c] * root;
    const double slope = sums.get(1, c) * scale * root;
    coefficients.put(0, c, factor);
    coefficients.put(1, c, of_batch ? -factor * root * slope / rows * scale : 0.0);
    coefficients.put(2, c, of_batch ? -factor * sums.get(0, c) / rows : 0.0);
    dgamma.put(0, c, slope);
    dbeta.put(0, c, sums.get(0, c));
  }
};

}  // namespace fq::detail
