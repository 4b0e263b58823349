#pragma once

/// Recurrent layers: products of rows with the weights, and the steps of a sequence.

#include <string_view>

#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/ops/recurrent.h"
#include "fakequant/core/tape.h"

namespace fq::detail {

/// Returns whether a value has integer codes of up to 8 bits, with one scale or one per row.
[[nodiscard]] bool has_integer_rows(const Variable& weight);

/// Returns the sum of each row of integer codes [C, K], as i32 [C].
[[nodiscard]] Tensor row_sums(const QuantizedTensor& w);

/// Left factor of a product with a weight: floats [R, K], or their codes and grids.
struct ProductRows {
  Tensor floats;
  Tensor codes, grids;

  [[nodiscard]] std::int64_t columns() const { return (codes.defined() ? codes : floats).dim(1); }
  /// Returns the floats, or the values of the codes.
  [[nodiscard]] Tensor values() const;
};

/// Product y [R, C] = rows [R, K] * transposed weight [C, K]. A float weight multiplies floats. An integer
/// weight multiplies codes of the rows, which are quantized by their own range.
class RowProduct {
 public:
  /// With one range per sample, row r belongs to sample r % batch. Throws ArgumentError for codes that cannot
  /// be multiplied as integers, and for sums that exceed int32.
  RowProduct(const Variable& weight, ops::DynamicRange range, std::int64_t batch, std::string_view op);

  /// Returns the floats unchanged, or new codes of them. Throws NumericError if a value to quantize is NaN.
  [[nodiscard]] ProductRows rows(const Tensor& x) const;
  /// Writes the product to all of y.
  void multiply(const ProductRows& x, Tensor& y) const;
  /// Returns the weight as floats.
  [[nodiscard]] Tensor values() const { return is_integer() ? dequantize(codes_) : floats_.get(); }
  [[nodiscard]] bool is_integer() const noexcept { return ranges_ > 0; }

 private:
  void multiply_codes(const ProductRows& x, Tensor& y) const;

  std::string_view op_;
  Saved floats_;
  QuantizedTensor codes_;
  Tensor weight_sums_;
  std::int64_t ranges_ = 0;  ///< 0: floats
};

/// `multiply_back` writes dx [R, K] = dy [R, C] * weight. `weight_gradient` returns a new dw [C, K] from dy
/// and the rows.
void multiply_back(const Tensor& dy, const Tensor& weight, Tensor& dx);
[[nodiscard]] Tensor weight_gradient(const Tensor& dy, const Tensor& rows);

// The steps of a recurrent layer, forward and backward. Tensors are in the order of the steps: [L, N, ..].

/// Inputs of a recurrent layer, with checked shapes and one type.
struct RecurrentInputs {
  std::string_view op;  ///< name of the operator, a literal
  RecurrentCell cell;
  bool reverse = false;
  ops::DynamicRange range = ops::DynamicRange::none;
  Variable x;  ///< floats [N, L, I]
  ops::RecurrentWeights weights;
  Variable hidden, state_cell;  ///< initial states; undefined: zeros

  [[nodiscard]] std::vector<Variable> all() const;
  [[nodiscard]] std::int64_t width() const { return weights.hidden.dim(1); }
};

/// Runs forward in the constructor. With `with_gradient` it keeps the values that `backward` needs.
class RecurrentSequence {
 public:
  RecurrentSequence(const RecurrentInputs& inputs, bool with_gradient);

  /// Returns the output, [N, L, H].
  [[nodiscard]] Tensor output() const;
  /// Returns the gradients of RecurrentInputs::all() for the gradient of the output.
  [[nodiscard]] std::vector<Tensor> backward(const Tensor& dy) const;

 private:
  struct StepGradients;
  [[nodiscard]] Tensor to_steps(const Tensor& x) const;
  [[nodiscard]] Tensor from_steps(const Tensor& x) const;
  [[nodiscard]] Tensor matrix(const Tensor& x, std::int64_t step) const;
  [[nodiscard]] Tensor rows(const Tensor& x) const;
  [[nodiscard]] Tensor initial(const Variable& state) const;
  void set_biases(const RecurrentInputs& inputs);
  void begin(const RecurrentInputs& inputs);
  void forward_step(std::int64_t step);
  [[nodiscard]] Tensor state_rows() const;
  void backward_steps(const Tensor& dy, StepGradients& out) const;

  RecurrentCell cell_;
  bool reverse_, keeps_;
  std::int64_t batch_, steps_, width_;
  std::vector<bool> needs_;
  RowProduct of_input_, of_state_;
  ProductRows x_;                        ///< [L*N, I]
  std::vector<ProductRows> state_rows_;  ///< for codes: the rows of each step
  Tensor bias_, state_bias_;
  Tensor gates_, state_sums_;  ///< [L, N, G*H]; state_sums_ has one step unless backward needs all
  Tensor states_, cells_;      ///< [L + 1, N, H], initial state first
};

}  // namespace fq::detail
