#pragma once

/// Normalisation layers, by the operators of core/ops/norm.h, whose shapes, dtypes and errors they have.
///
///     BatchNorm norm(64);       // after a convolution of 64 channels
///     LayerNorm last({128});    // over the last axis, of 128 features
///
/// None of them is quantized. A batch norm behind a linear layer or convolution costs nothing in a deployed
/// network: fold it before quantization (layers/model/fold.h), or leave it live, and it works on the integer
/// sums.

#include "fakequant/layers/modules/module.h"

namespace fq {

/// Batch normalisation of [N, C, ..] over everything but C. In training it takes the batch's statistics,
/// which move the running ones by `momentum` (unbiased variance); in evaluation, or frozen, it takes the
/// running ones.
///
/// Parameters are weight (ones at first) and bias (zeros) [C], buffers running_mean (zeros) and running_var
/// (ones) [C].
class BatchNorm : public Module {
 public:
  /// Throws ArgumentError for less than one channel, eps that is not positive, momentum outside 0 to 1.
  explicit BatchNorm(std::int64_t channels, double eps = 1e-5, double momentum = 0.1);

  [[nodiscard]] std::string type() const override { return "batch_norm"; }
  [[nodiscard]] std::string describe() const override;
  /// The factor of each channel, gamma in papers.
  [[nodiscard]] const Variable& weight() const noexcept { return weight_; }
  /// What is added to each channel, beta in papers.
  [[nodiscard]] const Variable& bias() const noexcept { return bias_; }
  /// The statistics that evaluation takes: handles of the buffers, which training writes to.
  [[nodiscard]] const Tensor& running_mean() const noexcept { return mean_; }
  [[nodiscard]] const Tensor& running_var() const noexcept { return variance_; }
  [[nodiscard]] double eps() const noexcept { return eps_; }
  /// The share of the way that running statistics go towards those of a batch.
  [[nodiscard]] double momentum() const noexcept { return momentum_; }
  /// Sets it. Throws ArgumentError outside of 0 to 1.
  void set_momentum(double momentum);
  /// Stops the statistics from moving, as is done late in quantization-aware training: while frozen, training
  /// uses the running statistics and leaves them alone, and gradients take them for constants.
  void freeze(bool on = true) noexcept { frozen_ = on; }
  [[nodiscard]] bool frozen() const noexcept { return frozen_; }
  /// Whether the layer before it takes it in where the network is deployed, which `quantize` finds out
  /// (fold.h): by the running statistics sums of codes then have the bits of the folded layer.
  void set_in_layer(bool on) noexcept { in_layer_ = on; }
  [[nodiscard]] bool in_layer() const noexcept { return in_layer_; }

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;
  void on_device_change(Device device) override;

 private:
  Variable weight_, bias_;
  Tensor mean_, variance_;
  double eps_, momentum_;
  bool frozen_ = false;
  bool in_layer_ = false;
};

/// Layer normalisation over the last axes, which have `shape`; it is the same in training and evaluation.
/// Parameters are weight (ones at first) and bias (zeros) of that shape.
class LayerNorm : public Module {
 public:
  /// `shape` are the sizes of the last axes, {features} for sequences; inputs of another size there are
  /// refused.
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

/// Group normalisation of [N, C, ..] by ops::group_norm, or instance normalisation where there is a group for
/// each channel; it is the same in training and evaluation. Parameters are weight (ones at first) and bias
/// (zeros) [C].
class GroupNorm : public Module {
 public:
  /// Throws ArgumentError unless the groups divide the channels, and eps is positive.
  GroupNorm(std::int64_t groups, std::int64_t channels, double eps = 1e-5);
  /// "instance_norm" where there is a group for each channel, else "group_norm".
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

/// Root mean square normalisation over the last axes, which have `shape`, by ops::rms_norm. The parameter is
/// weight (ones at first) of that shape; there is no bias.
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
