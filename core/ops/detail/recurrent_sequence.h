#pragma once

/// The steps of a recurrent layer, forward and backward. Tensors are in the order of the steps: [L, N, ..].

#include <string_view>

#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/ops/detail/row_product.h"

namespace fq::detail {

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
