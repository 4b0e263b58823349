#include "fakequant/core/ops/detail/recurrent_sequence.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/profile.h"

namespace fq::detail {
namespace {

// Largest u8 code of DynamicQuantizeLinear.
constexpr std::int64_t kLargestInput = 255;

}  // namespace

// An asymmetric input with zero point z needs them: sum (q_x - z) * q_w = sum q_x * q_w - z * sum q_w.
Tensor row_sums(const QuantizedTensor& w) {
  const std::int64_t channels = w.codes.dim(0), terms = w.codes.dim(1);
  Tensor out = Tensor::empty({1, channels}, DType::i32, w.codes.device());
  // A product with ones: it uses the exact kernels of every device.
  const Tensor ones = Tensor::full({1, terms}, 1.0, DType::u8, w.codes.device());
  run(out.device(), &Kernels::exact_gemm, std::int64_t{1}, channels, terms, Codes{ones.raw(), DType::u8, 1},
      as_codes(w, w.codes), out);
  return out.reshape({channels});
}

bool has_integer_rows(const Variable& weight) {
  const QuantizedTensor* codes = weight.defined() ? weight.quantized() : nullptr;
  return codes != nullptr && codes->grid.format.is_integer() && codes->grid.format.bits() <= 8 &&
         codes_are_factors(*codes, 0);
}

Tensor ProductRows::values() const {
  if (!codes.defined()) return floats;
  Tensor out = Tensor::empty(codes.shape(), DType::f32, codes.device());
  run(out.device(), &Kernels::dynamic_values, codes, grids, out);
  return out;
}

RowProduct::RowProduct(const Variable& weight, ops::DynamicRange range, std::int64_t batch,
                       std::string_view op)
    : op_(op) {
  if (range != ops::DynamicRange::none) {
    FQ_CHECK(
        has_integer_rows(weight), op,
        "integer products need weights with integer codes of up to 8 bits, and one scale or one per row: "
        "quantize the weights, or use no range");
    codes_ = *weight.quantized();
    codes_.mask = {};
    ranges_ = range == ops::DynamicRange::tensor ? 1 : std::max<std::int64_t>(batch, 1);
    const Codes codes = as_codes(codes_, codes_.codes);
    const std::int64_t terms = codes_.codes.dim(1), product = kLargestInput * codes.largest;
    // Worst case of all codes: no partial sum leaves int32.
    FQ_CHECK(terms <= std::numeric_limits<std::int32_t>::max() / product, op,
             "sums of {} products of codes exceed int32: use fewer features", terms);
    weight_sums_ = row_sums(codes_);
  } else {
    floats_ = Saved(weight.as_float().tensor());
  }
}

ProductRows RowProduct::rows(const Tensor& x) const {
  if (!is_integer()) return {x, {}, {}};
  ProductRows out{{},
                  Tensor::empty(x.shape(), DType::u8, x.device()),
                  Tensor::empty({ranges_, 2}, DType::f32, x.device())};
  run(x.device(), &Kernels::dynamic_codes, x, out.codes, out.grids,
      fmt::format("[{}] the input or the state has a NaN", op_));
  return out;
}

void RowProduct::multiply(const ProductRows& x, Tensor& y) const {
  if (is_integer()) return multiply_codes(x, y);
  const Tensor& w = floats_.get();
  detail::multiply({x.floats, x.floats.dim(0), x.floats.dim(1)}, {w, w.dim(1), w.dim(0), true}, y);
}

void RowProduct::multiply_codes(const ProductRows& x, Tensor& y) const {
  if (y.numel() == 0) return;
  Tensor sums = Tensor::empty(y.shape(), DType::i32, y.device());
  run(y.device(), &Kernels::exact_gemm, y.dim(0), y.dim(1), x.codes.dim(1),
      Codes{x.codes.raw(), DType::u8, kLargestInput}, as_codes(codes_, codes_.codes), sums);
  run(y.device(), &Kernels::dynamic_sums, sums, weight_sums_, x.grids, factor_scale(codes_, 0), y);
}

void multiply_back(const Tensor& dy, const Tensor& weight, Tensor& dx) {
  multiply({dy, dy.dim(0), dy.dim(1)}, {weight, weight.dim(0), weight.dim(1)}, dx, 1, Sharing::by_threads);
}

Tensor weight_gradient(const Tensor& dy, const Tensor& rows) {
  Tensor dw = Tensor::empty({dy.dim(1), rows.dim(1)}, dy.dtype(), dy.device());
  multiply({dy, dy.dim(1), dy.dim(0), true}, {rows, rows.dim(0), rows.dim(1)}, dw, 1, Sharing::by_threads);
  return dw;
}

namespace {

Tensor swapped(const Tensor& x) {
  Tensor out = Tensor::empty({x.dim(1), x.dim(0), x.dim(2)}, x.dtype(), x.device());
  if (x.numel() > 0)
    run(x.device(), &Kernels::permute, x.to(Layout::row_major), std::vector<int>{1, 0, 2}, out);
  return out;
}

/// Reverses the steps along axis 0.
Tensor reversed_steps(const Tensor& x) {
  std::vector<std::int64_t> from(static_cast<std::size_t>(x.dim(0)));
  std::iota(from.rbegin(), from.rend(), 0);
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (x.numel() > 0) run(x.device(), &Kernels::take, x, 0, from, 0.0, out);
  return out;
}

Tensor tensor_sum(const Tensor& a, const Tensor& b) {
  Tensor out = a.clone();
  accumulate(out, b);
  return out;
}

}  // namespace

std::vector<Variable> RecurrentInputs::all() const {
  std::vector<Variable> out{x, weights.input, weights.hidden, weights.input_bias, weights.hidden_bias};
  // The order of this list is the order of the gradients in `backward`.
  if (cell != RecurrentCell::lstm) return out.push_back(hidden), out;
  out.insert(out.end(), {hidden, state_cell});
  return out;
}

RecurrentSequence::RecurrentSequence(const RecurrentInputs& inputs, bool with_gradient)
    : cell_(inputs.cell),
      reverse_(inputs.reverse),
      keeps_(with_gradient),
      batch_(inputs.x.dim(0)),
      steps_(inputs.x.dim(1)),
      width_(inputs.width()),
      of_input_(inputs.weights.input, inputs.range, batch_, inputs.op),
      of_state_(inputs.weights.hidden, inputs.range, batch_, inputs.op) {
  const ProfileScope profile("recurrent", "forward");
  for (const auto& input : inputs.all()) needs_.push_back(input.requires_grad());
  set_biases(inputs);
  begin(inputs);
  for (std::int64_t step = 0; step < steps_; ++step) forward_step(step);
  // Evaluation needs only the states, so memory for backward is released.
  if (!keeps_) gates_ = state_sums_ = cells_ = x_.floats = x_.codes = {};
}

/// Computes the input sums, and allocates the results of the steps. x: [N, L, I]. W x_t + b does not depend
/// on the state, so one product of L*N rows computes it for all steps.
void RecurrentSequence::begin(const RecurrentInputs& inputs) {
  const Tensor x = inputs.x.tensor();
  const std::int64_t columns = gate_count(cell_) * width_;
  const auto make = [&](const Shape& shape) { return Tensor::empty(shape, x.dtype(), x.device()); };
  x_ = of_input_.rows(rows(to_steps(x)));
  gates_ = make({steps_, batch_, columns});
  Tensor sums = rows(gates_);
  of_input_.multiply(x_, sums);
  // The backward pass of a GRU needs R_n h + c_n of every step: the gradient of the reset gate is a product
  // with it. The other cells use the sums within the step only.
  state_sums_ = make({keeps_ && cell_ == RecurrentCell::gru ? steps_ : 1, batch_, columns});
  states_ = make({steps_ + 1, batch_, width_});
  matrix(states_, 0).copy_from(initial(inputs.hidden));
  if (cell_ != RecurrentCell::lstm) return;
  cells_ = make({keeps_ ? steps_ + 1 : 1, batch_, width_});
  matrix(cells_, 0).copy_from(initial(inputs.state_cell));
}

void RecurrentSequence::set_biases(const RecurrentInputs& inputs) {
  const std::int64_t columns = gate_count(cell_) * width_, last = columns - width_;
  const Tensor x = inputs.x.tensor(), zeros = Tensor::zeros({columns}, x.dtype(), x.device());
  const auto given = [&](const Variable& bias) { return bias.defined() ? bias.tensor() : zeros; };
  const Tensor a = given(inputs.weights.input_bias), b = given(inputs.weights.hidden_bias);
  bias_ = tensor_sum(a, b);
  if (cell_ != RecurrentCell::gru) return;
  // In a GRU, the reset gate multiplies R_n h + c_n: this bias must stay separate from the input bias.
  state_bias_ = b.slice(last, columns);
  bias_.slice(last, columns).copy_from(a.slice(last, columns));
}

Tensor RecurrentSequence::initial(const Variable& state) const {
  return state.defined() ? state.tensor().to(Layout::row_major)
                         : Tensor::zeros({batch_, width_}, states_.dtype(), states_.device());
}

Tensor RecurrentSequence::to_steps(const Tensor& x) const {
  const Tensor steps = swapped(x);
  return reverse_ ? reversed_steps(steps) : steps;
}

Tensor RecurrentSequence::from_steps(const Tensor& x) const {
  return swapped(reverse_ ? reversed_steps(x) : x);
}

Tensor RecurrentSequence::matrix(const Tensor& x, std::int64_t step) const {
  return x.slice(step, step + 1).reshape({batch_, x.dim(2)});
}

Tensor RecurrentSequence::rows(const Tensor& x) const { return x.reshape({x.dim(0) * batch_, x.dim(2)}); }

void RecurrentSequence::forward_step(std::int64_t step) {
  const bool lstm = cell_ == RecurrentCell::lstm;
  const std::int64_t sums_at = state_sums_.dim(0) > 1 ? step : 0,
                     cell_at = lstm && cells_.dim(0) > 1 ? step : 0;
  const Tensor state = matrix(states_, step);
  Tensor sums = matrix(state_sums_, sums_at);
  ProductRows rows = of_state_.rows(state);
  of_state_.multiply(rows, sums);
  RecurrentStep call{.kind = cell_,
                     .gates = matrix(gates_, step),
                     .of_state = sums,
                     .bias = bias_,
                     .state_bias = state_bias_,
                     .before = {},
                     .cell = {},
                     .state = matrix(states_, step + 1)};
  if (cell_ == RecurrentCell::gru) call.before = state;
  if (lstm) {
    call.before = matrix(cells_, cell_at);
    // Without a gradient one buffer holds the cell state, which the step updates in place.
    call.cell = cells_.dim(0) > 1 ? matrix(cells_, step + 1) : call.before;
  }
  run(state.device(), &Kernels::recurrent_step, call);
  if (keeps_ && of_state_.is_integer()) state_rows_.push_back(std::move(rows));
}

Tensor RecurrentSequence::output() const { return from_steps(states_.slice(1, steps_ + 1)); }

/// Returns the values that were multiplied with the state weights, [L*N, H]. The weight gradient needs the
/// rounded states that forward multiplied, not the float states.
Tensor RecurrentSequence::state_rows() const {
  if (state_rows_.empty()) return rows(states_.slice(0, steps_));
  Tensor out = Tensor::empty({steps_, batch_, width_}, states_.dtype(), states_.device());
  for (std::int64_t step = 0; step < steps_; ++step)
    matrix(out, step).copy_from(state_rows_[static_cast<std::size_t>(step)].values());
  return rows(out);
}

/// Gradients of the input sums and the state sums, [L, N, G*H] (separate only for a GRU), and of the states.
struct RecurrentSequence::StepGradients {
  Tensor gates, of_state, state, carried;
};

void RecurrentSequence::backward_steps(const Tensor& dy, StepGradients& out) const {
  const bool gru = cell_ == RecurrentCell::gru, lstm = cell_ == RecurrentCell::lstm;
  out.gates = Tensor::empty(gates_.shape(), dy.dtype(), dy.device());
  // Only in a GRU do the input sums and the state sums have different gradients.
  out.of_state = gru ? Tensor::empty(gates_.shape(), dy.dtype(), dy.device()) : out.gates;
  out.state = Tensor::zeros({batch_, width_}, dy.dtype(), dy.device());
  if (gru || lstm) out.carried = Tensor::zeros({batch_, width_}, dy.dtype(), dy.device());
  // d h_{t-1} = d(R h_{t-1}) * R. `carried` is the direct path: z * dh in a GRU, the gradient of the cell
  // state in an LSTM.
  const Tensor weight = of_state_.values();
  for (std::int64_t step = steps_ - 1; step >= 0; --step) {
    RecurrentStepBackward call{.kind = cell_,
                               .gates = matrix(gates_, step),
                               .of_state = gru ? matrix(state_sums_, step) : Tensor(),
                               .before = {},
                               .cell = {},
                               .dy = matrix(dy, step),
                               .dstate = out.state,
                               .carried = out.carried,
                               .dgates = matrix(out.gates, step),
                               .dof_state = gru ? matrix(out.of_state, step) : Tensor()};
    if (gru) call.before = matrix(states_, step);
    if (lstm) {
      call.before = matrix(cells_, step);
      call.cell = matrix(cells_, step + 1);
    }
    run(dy.device(), &Kernels::recurrent_step_backward, call);
    // The gradient of the initial state is only computed on request.
    if (step > 0 || needs_[5]) multiply_back(matrix(out.of_state, step), weight, out.state);
  }
}

std::vector<Tensor> RecurrentSequence::backward(const Tensor& dy) const {
  const ProfileScope profile("recurrent", "backward");
  StepGradients steps;
  backward_steps(to_steps(dy), steps);
  const Tensor of_input = rows(steps.gates), of_state = rows(steps.of_state);
  std::vector<Tensor> out(needs_.size());
  if (needs_[0]) {
    Tensor dx = Tensor::empty({steps_ * batch_, x_.columns()}, dy.dtype(), dy.device());
    multiply_back(of_input, of_input_.values(), dx);
    out[0] = from_steps(dx.reshape({steps_, batch_, dx.dim(1)}));
  }
  if (needs_[1]) out[1] = weight_gradient(of_input, x_.values());
  if (needs_[2]) out[2] = weight_gradient(of_state, state_rows());
  if (needs_[3]) out[3] = bias_gradient(of_input, of_input.dim(1));
  if (needs_[4]) out[4] = bias_gradient(of_state, of_state.dim(1));
  if (needs_[5]) out[5] = cell_ == RecurrentCell::gru ? tensor_sum(steps.state, steps.carried) : steps.state;
  if (cell_ == RecurrentCell::lstm && needs_[6]) out[6] = steps.carried;
  return out;
}

}  // namespace fq::detail
