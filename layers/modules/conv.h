#pragma once

/// Convolution layers. The operators define output shapes and errors (core/ops/conv.h). Weights and biases
/// are initialised uniformly within 1/sqrt(n), where n is the number of weight elements per index of the
/// first axis.
///
///     Conv2d conv(32, 64, {3}, {.stride = {2}, .padding = {1}});
///     Variable y = conv(x);  // [N, 32, 28, 28] -> [N, 64, 14, 14]

#include "fakequant/core/ops/conv.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// Base of all convolutions: a weight, a bias [out_channels], and options.
class Conv : public Module {
 public:
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] const Variable& weight() const noexcept { return weight_; }
  /// Undefined without a bias.
  [[nodiscard]] const Variable& bias() const noexcept { return bias_; }
  [[nodiscard]] const ops::ConvOptions& options() const noexcept { return options_; }
  /// Returns the axis of the weight that holds output channels. In a grouped transposed convolution this axis
  /// holds the channels of one group.
  [[nodiscard]] virtual int channel_axis() const { return 0; }
  /// Returns the number of output channels of all groups.
  [[nodiscard]] virtual std::int64_t out_channels() const { return weight_.dim(0); }
  /// Adds a bias of zeros if the layer has none. Folding a batch norm needs it.
  void ensure_bias();

 protected:
  /// `outer` and `inner` are the sizes of the first two axes of the weight.
  Conv(std::int64_t outer, std::int64_t inner, const Shape& kernel, int rank, std::int64_t out_channels,
       bool bias, ops::ConvOptions options);
  struct Adopt {};
  Conv(Adopt, const Conv& other);

  Variable weight_;
  Variable bias_;
  ops::ConvOptions options_;
};

/// Convolution over images: x [N, C, H, W] -> [N, out, H', W']; weight [out, C / groups, kh, kw].
class Conv2d : public Conv {
 public:
  /// A kernel of one size is square. Throws ArgumentError if the groups do not divide the channels.
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, Shape kernel, ops::ConvOptions options = {},
         bool bias = true);
  [[nodiscard]] std::string type() const override { return "conv2d"; }

 protected:
  Conv2d(Adopt tag, const Conv2d& other) : Conv(tag, other) {}
  Variable forward(const Variable& x) override { return apply(x, weight_); }
  using Module::forward;
  [[nodiscard]] Variable apply(const Variable& x, const Variable& w) const;
};

/// Convolution over sequences: x [N, C, L] -> [N, out, L']; weight [out, C / groups, k].
class Conv1d : public Conv {
 public:
  /// Throws ArgumentError as Conv2d.
  Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel,
         ops::ConvOptions options = {}, bool bias = true);
  [[nodiscard]] std::string type() const override { return "conv1d"; }

 protected:
  Conv1d(Adopt tag, const Conv1d& other) : Conv(tag, other) {}
  Variable forward(const Variable& x) override { return apply(x, weight_); }
  using Module::forward;
  [[nodiscard]] Variable apply(const Variable& x, const Variable& w) const;
};

/// Convolution over volumes: x [N, C, D, H, W] -> [N, out, D', H', W']; weight [out, C / groups, kd, kh, kw].
class Conv3d : public Conv {
 public:
  /// A kernel of one size is a cube. Throws ArgumentError as Conv2d.
  Conv3d(std::int64_t in_channels, std::int64_t out_channels, Shape kernel, ops::ConvOptions options = {},
         bool bias = true);
  [[nodiscard]] std::string type() const override { return "conv3d"; }

 protected:
  Conv3d(Adopt tag, const Conv3d& other) : Conv(tag, other) {}
  Variable forward(const Variable& x) override { return apply(x, weight_); }
  using Module::forward;
  [[nodiscard]] Variable apply(const Variable& x, const Variable& w) const;
};

/// Base of the transposed convolutions: the weight is [C, out / groups, ..].
class ConvTranspose : public Conv {
 public:
  [[nodiscard]] int channel_axis() const override { return 1; }
  [[nodiscard]] std::int64_t out_channels() const override { return weight_.dim(1) * options_.groups; }

 protected:
  ConvTranspose(std::int64_t in_channels, std::int64_t out_channels, const Shape& kernel, int rank,
                ops::ConvOptions options, Shape output_padding, bool bias);
  ConvTranspose(Adopt tag, const ConvTranspose& other)
      : Conv(tag, other), output_padding_(other.output_padding_) {}

  Shape output_padding_;
};

/// The transpose of Conv2d: x [N, C, H, W] -> [N, out, (H-1)*stride - 2*padding + kernel + output_padding,
/// ..]; weight [C, out / groups, kh, kw].
class ConvTranspose2d : public ConvTranspose {
 public:
  /// `output_padding` has one number per axis: the rows and columns added at the end, 0 by default. Throws
  /// ArgumentError as Conv2d.
  ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, Shape kernel,
                  ops::ConvOptions options = {}, Shape output_padding = {}, bool bias = true);
  [[nodiscard]] std::string type() const override { return "conv_transpose2d"; }

 protected:
  ConvTranspose2d(Adopt tag, const ConvTranspose2d& other) : ConvTranspose(tag, other) {}
  Variable forward(const Variable& x) override { return apply(x, weight_); }
  using Module::forward;
  [[nodiscard]] Variable apply(const Variable& x, const Variable& w) const;
};

/// The transpose of Conv1d: x [N, C, L] -> [N, out, L']; weight [C, out / groups, k].
class ConvTranspose1d : public ConvTranspose {
 public:
  /// Throws ArgumentError as Conv2d.
  ConvTranspose1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel,
                  ops::ConvOptions options = {}, std::int64_t output_padding = 0, bool bias = true);
  [[nodiscard]] std::string type() const override { return "conv_transpose1d"; }

 protected:
  ConvTranspose1d(Adopt tag, const ConvTranspose1d& other) : ConvTranspose(tag, other) {}
  Variable forward(const Variable& x) override { return apply(x, weight_); }
  using Module::forward;
  [[nodiscard]] Variable apply(const Variable& x, const Variable& w) const;
};

/// The transpose of Conv3d: x [N, C, D, H, W] -> [N, out, D', H', W']; weight [C, out / groups, kd, kh, kw].
class ConvTranspose3d : public ConvTranspose {
 public:
  /// Takes the arguments of ConvTranspose2d.
  ConvTranspose3d(std::int64_t in_channels, std::int64_t out_channels, Shape kernel,
                  ops::ConvOptions options = {}, Shape output_padding = {}, bool bias = true);
  [[nodiscard]] std::string type() const override { return "conv_transpose3d"; }

 protected:
  ConvTranspose3d(Adopt tag, const ConvTranspose3d& other) : ConvTranspose(tag, other) {}
  Variable forward(const Variable& x) override { return apply(x, weight_); }
  using Module::forward;
  [[nodiscard]] Variable apply(const Variable& x, const Variable& w) const;
};

}  // namespace fq
