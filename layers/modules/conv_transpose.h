#pragma once

/// The transposed convolution layer.

#include "fakequant/core/ops/conv_transpose.h"
#include "fakequant/layers/modules/conv.h"

namespace fq {

/// The transpose of Conv2d: x [N, C, H, W] -> [N, out, (H-1)*stride - 2*padding + kernel + output_padding,
/// ..]; weight [C, out / groups, kh, kw].
class ConvTranspose2d : public Conv {
 public:
  ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, Shape kernel,
                  ops::ConvOptions options = {}, Shape output_padding = {}, bool bias = true);
  [[nodiscard]] std::string type() const override { return "conv_transpose2d"; }
  [[nodiscard]] int channel_axis() const override { return 1; }
  [[nodiscard]] std::int64_t out_channels() const override { return weight_.dim(1) * options_.groups; }

 protected:
  ConvTranspose2d(Adopt tag, const ConvTranspose2d& other)
      : Conv(tag, other), output_padding_(other.output_padding_) {}
  Variable forward(const Variable& x) override { return apply(x, weight_); }
  using Module::forward;
  [[nodiscard]] Variable apply(const Variable& x, const Variable& w) const;

  Shape output_padding_;
};

}  // namespace fq
