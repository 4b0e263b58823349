#pragma once

/// Convolutions of volumes as products of images, whose engines, exact sums included, are those of every
/// device.

#include <string_view>

#include "fakequant/core/ops/detail/conv_geometry.h"
#include "fakequant/core/ops/detail/convolution.h"

namespace fq::detail {

/// A checked convolution of [n, c, d, h, w], or its transpose. A transposed one gathers its input, too: a
/// slab of the output reads the slabs whose taps reach it.
class VolumeConvolution final : public Product {
 public:
  VolumeConvolution(std::string_view operator_name, const VolumeShape& shape, Attributes attributes_);

  [[nodiscard]] Tensor input(const Tensor& x) const override;
  [[nodiscard]] Tensor weight(const Tensor& w) const override;
  [[nodiscard]] Tensor output(const Tensor& y) const override;
  [[nodiscard]] Tensor gradient(const Tensor& dy) const override;
  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& w) const override;
  [[nodiscard]] Tensor exact_sums(const Codes& x, const Codes& w, Device device) const override;
  [[nodiscard]] Tensor backward_x(const Tensor& dy, const Tensor& w) const override;
  [[nodiscard]] Tensor backward_w(const Tensor& x, const Tensor& dy) const override;

 private:
  VolumeShape shape_;
  Convolution images_;
};

}  // namespace fq::detail
