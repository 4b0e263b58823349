#pragma once

/// Products of rows with the weights of a recurrent layer.

#include <string_view>

#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/ops/recurrent.h"
#include "fakequant/core/tape.h"

namespace fq::detail {

/// Whether a value has integer codes of up to 8 bits, with one scale or one a row.
[[nodiscard]] bool has_integer_rows(const Variable& weight);

/// The sums of the rows of integer codes [C, K], i32 [C].
[[nodiscard]] Tensor row_sums(const QuantizedTensor& w);

/// What is multiplied with a weight: floats [R, K], or codes of them and their grids.
struct ProductRows {
  Tensor floats;
  Tensor codes, grids;

  [[nodiscard]] std::int64_t columns() const { return (codes.defined() ? codes : floats).dim(1); }
  /// As floats: the codes' values.
  [[nodiscard]] Tensor values() const;
};

/// y [R, C] = rows [R, K] times a weight [C, K] turned over, of floats; or of codes, the rows' by a range of
/// their own.
class RowProduct {
 public:
  /// With a range for each sample, row r is of sample r % batch. Throws ArgumentError for codes that are no
  /// integer factors and sums that leave int32.
  RowProduct(const Variable& weight, ops::DynamicRange range, std::int64_t batch, std::string_view op);

  /// Floats as they are, or new codes of them. Throws NumericError for a NaN in what codes are made of.
  [[nodiscard]] ProductRows rows(const Tensor& x) const;
  /// Into y, written whole.
  void multiply(const ProductRows& x, Tensor& y) const;
  /// The weight as floats.
  [[nodiscard]] Tensor values() const { return is_integer() ? dequantize(codes_) : floats_.get(); }
  [[nodiscard]] bool is_integer() const noexcept { return ranges_ > 0; }

 private:
  void multiply_codes(const ProductRows& x, Tensor& y) const;

  std::string_view op_;
  Saved floats_;
  QuantizedTensor codes_;
  Tensor weight_sums_;
  std::int64_t ranges_ = 0;  ///< none: floats
};

/// dx [R, K] = dy [R, C] times the weight, written whole; and the new dw [C, K] from dy and the rows.
void multiply_back(const Tensor& dy, const Tensor& weight, Tensor& dx);
[[nodiscard]] Tensor weight_gradient(const Tensor& dy, const Tensor& rows);

// The steps of a recurrent layer, forward and backward. Tensors are in the order of the steps: [L, N, ..].

/// What a layer is told, of checked shapes and one type.
struct RecurrentInputs {
  std::string_view op;  ///< a literal
  RecurrentCell cell;
  bool reverse = false;
  ops::DynamicRange range = ops::DynamicRange::none;
  Variable x;  ///< floats [N, L, I]
  ops::RecurrentWeights weights;
  Variable hidden, state_cell;  ///< undefined: zeros

  [[nodiscard]] std::vector<Variable> all() const;
  [[nodiscard]] std::int64_t width() const { return weights.hidden.dim(1); }
};

/// Runs forward when it is made, and keeps what `backward` needs where `with_gradient`.
class RecurrentSequence {
 public:
  RecurrentSequence(const RecurrentInputs& inputs, bool with_gradient);

  /// [N, L, H].
  [[nodiscard]] Tensor output() const;
  /// The gradients of RecurrentInputs::all(), from that of the output.
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
  std::vector<ProductRows> state_rows_;  ///< of codes: those of each step
  Tensor bias_, state_bias_;
  Tensor gates_, state_sums_;  ///< [L, N, G*H]; the sums of one step where nothing else asks for them
  Tensor states_, cells_;      ///< [L + 1, N, H], the initial ones first
};

}  // namespace fq::detail
