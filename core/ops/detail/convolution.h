#pragma once

/// Every convolution as a Product: one and two dimensions, and transposed.

#include <string_view>

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/ops/detail/product.h"

namespace fq::detail {

/// A checked convolution, or its transpose in x: then the input is `shape`'s y and the output its x.
class Convolution final : public Product {
 public:
  /// `rank` of x and y: 3 for one-dimensional ones, whose shape has a height of 1.
  Convolution(std::string_view operator_name, const ConvShape& shape, bool transposed, int rank,
              Shape weight_shape, Attributes attributes_);

  [[nodiscard]] Tensor input(const Tensor& x) const override;
  [[nodiscard]] Tensor weight(const Tensor& w) const override;
  [[nodiscard]] Tensor output(const Tensor& y) const override;
  [[nodiscard]] Tensor gradient(const Tensor& dy) const override;
  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& w) const override;
  [[nodiscard]] Tensor exact_sums(const Codes& x, const Codes& w, Device device) const override;
  [[nodiscard]] Tensor backward_x(const Tensor& dy, const Tensor& w) const override;
  [[nodiscard]] Tensor backward_w(const Tensor& x, const Tensor& dy) const override;

 private:
  ConvShape shape_;
  bool transposed_;
  int rank_;
  Shape weight_shape_;
};

}  // namespace fq::detail
