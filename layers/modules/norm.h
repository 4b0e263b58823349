#pragma once

/// Normalisation layers. The operators define shapes, dtypes and errors (core/ops/norm.h).
///
///     BatchNorm norm(64);       // after a convolution of 64 channels
///     LayerNorm last({128});    // over the last axis, of 128 features
///
/// Norms are not quantized. A batch norm after a linear layer or convolution costs nothing in a deployed
/// network. Fold it before quantization (layers/model/fold.h), or keep it: it then works on the integer sums.

#include "fakequant/layers/modules/module.h"

namespace fq {

/// Batch normalisation of [N, C, ..] over all axes except C. Training uses the statistics of the batch and
/// updates the running statistics with `momentum` (unbiased variance). Evaluation, or a frozen norm, uses the
/// running statistics.
///
/// Parameters: weight (initially ones) and bias (zeros) [C]. Buffers: running_mean (zeros) and running_var
/// (ones) [C].
class BatchNorm : public Module {
 public:
  /// Throws ArgumentError for less than one channel, an eps that is not positive, or a momentum outside 0 to
  /// 1.
  explicit BatchNorm(std::int64_t channels, double eps = 1e-5, double momentum = 0.1);

  [[nodiscard]] std::string type() const override { return "batch_norm"; }
  [[nodiscard]] std::string describe() const override;
  /// Returns the factor of each channel, gamma in papers.
  [[nodiscard]] const Variable& weight() const noexcept { return weight_; }
  /// Returns the offset of each channel, beta in papers.
  [[nodiscard]] const Variable& bias() const noexcept { return bias_; }
  /// Returns the statistics for evaluation. These are handles of the buffers, which training updates.
  [[nodiscard]] const Tensor& running_mean() const noexcept { return mean_; }
  [[nodiscard]] const Tensor& running_var() const noexcept { return variance_; }
  [[nodiscard]] double eps() const noexcept { return eps_; }
  /// Returns the weight of a batch's statistics in the update of the running statistics.
  [[nodiscard]] double momentum() const noexcept { return momentum_; }
  /// Sets the momentum. Throws ArgumentError outside 0 to 1.
  void set_momentum(double momentum);
  /// Stops updates of the statistics, for late stages of quantization-aware training. A frozen norm uses the
  /// running statistics in training too and leaves them unchanged. Gradients treat them as constants.
  void freeze(bool on = true) noexcept { frozen_ = on; }
  [[nodiscard]] bool frozen() const noexcept { return frozen_; }
  /// Sets whether a deployed network folds this norm into the layer before it. `quantize` sets the flag
  /// (fold.h). With running statistics, the sums of codes then have the bits of the folded layer.
  void set_folds_into_layer(bool on) noexcept { in_layer_ = on; }
  [[nodiscard]] bool folds_into_layer() const noexcept { return in_layer_; }

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;
  void handle_device_change(Device device) override;

 private:
  Variable weight_, bias_;
  Tensor mean_, variance_;
  double eps_, momentum_;
  bool frozen_ = false;
  bool in_layer_ = false;
};

/// Layer normalisation over the last axes, which have `shape`. Training and evaluation are the same.
/// Parameters: weight (initially ones) and bias (zeros) of that shape.
class LayerNorm : public Module {
 public:
  /// `shape` has the sizes of the last axes, {features} for sequences. Throws ArgumentError for inputs whose
  /// last axes have other sizes.
  explicit LayerNorm(Shape shape, double eps = 1e-5);
  [[nodiscard]] std::string type() const override { return "layer_norm"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  Variable weight_, bias_;
  double eps_;
};

/// Group normalisation of [N, C, ..] with ops::group_norm. With one channel per group it is instance
/// normalisation. Training and evaluation are the same. Parameters: weight (initially ones) and bias (zeros)
/// [C].
class GroupNorm : public Module {
 public:
  /// Throws ArgumentError if the groups do not divide the channels or eps is not positive.
  GroupNorm(std::int64_t groups, std::int64_t channels, double eps = 1e-5);
  /// Returns "instance_norm" if each group has one channel, else "group_norm".
  [[nodiscard]] std::string type() const override;
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  Variable weight_, bias_;
  std::int64_t groups_;
  double eps_;
};

/// Root mean square normalisation over the last axes, which have `shape`, with ops::rms_norm. The parameter
/// is weight (initially ones) of that shape. It has no bias.
class RmsNorm : public Module {
 public:
  /// `shape` and `eps` are as for LayerNorm.
  explicit RmsNorm(Shape shape, double eps = 1e-5);
  [[nodiscard]] std::string type() const override { return "rms_norm"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  Variable weight_;
  double eps_;
};

}  // namespace fq
