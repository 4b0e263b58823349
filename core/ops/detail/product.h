#pragma once

/// The body of linear and of every convolution: floats, minifloat codes or integer codes, forward and
/// backward.

#include <cstddef>
#include <memory>
#include <string_view>

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/tape.h"

namespace fq::detail {

/// A product of an input and weights, linear in both, of checked shapes. Its functions take and give tensors
/// in the form of the engine, channels innermost: `input` and `weight` bring them there, `output` back. They
/// are factors: f32, f64, or bf16 with results of f32.
class Product {
 public:
  virtual ~Product() = default;

  std::string_view name;      ///< of the operator, a literal
  std::int64_t channels = 0;  ///< of the output
  std::int64_t terms = 0;     ///< products in one output
  int weight_axis = 0;        ///< of the output channels in the weights
  int output_axis = 1;        ///< of the channels in the output
  bool same_weights = true;   ///< for every row of the input along its first axis
  /// Of the input, from which on a row's gradient has the same bits however many there are.
  std::size_t fewest_rows = 1;
  bool made_again = false;  ///< whether sums of codes are rather multiplied again than kept for backward
  Attributes attributes;

  [[nodiscard]] virtual Tensor input(const Tensor& x) const = 0;
  [[nodiscard]] virtual Tensor weight(const Tensor& w) const = 0;
  [[nodiscard]] virtual Tensor output(const Tensor& y) const = 0;
  /// A gradient of the output in the form of the engine.
  [[nodiscard]] virtual Tensor gradient(const Tensor& dy) const = 0;

  [[nodiscard]] virtual Tensor forward(const Tensor& x, const Tensor& w) const = 0;
  /// The same, scaled and with a bias, which may be undefined, as `scale_products` does it.
  [[nodiscard]] virtual Tensor scaled(const Tensor& x, const Tensor& w, const Tensor& scale,
                                      const Variable& bias) const;
  /// Exact int32 sums of codes of integers; `x` and `w` as `input` and `weight` give them.
  [[nodiscard]] virtual Tensor exact_sums(const Codes& x, const Codes& w, Device device) const = 0;
  /// In the shapes of the operator's own input and weights; of x as many rows along the first axis as `dy`
  /// has.
  [[nodiscard]] virtual Tensor backward_x(const Tensor& dy, const Tensor& w) const = 0;
  [[nodiscard]] virtual Tensor backward_w(const Tensor& x, const Tensor& dy) const = 0;
};

/// y, recorded and reported under the product's name. `bias` may be undefined.
[[nodiscard]] Variable apply(std::shared_ptr<const Product> product, const Variable& x, const Variable& w,
                             const Variable& bias);

}  // namespace fq::detail
