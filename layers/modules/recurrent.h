#pragma once

/// Recurrent layers, computed by ops::lstm, ops::gru and ops::rnn (core/ops/recurrent.h).
///
///     Recurrent layer(Recurrent::Kind::gru, 8, 64, true);                        // [N, L, 8] to [N, L, 128]
///     Recurrent deep(Recurrent::Kind::lstm, {.in = 8, .hidden = 64, .layers = 2, .dropout = 0.2});

#include "fakequant/core/ops/recurrent.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

struct RecurrentOptions {
  std::int64_t in = 0, hidden = 0;
  bool bidirectional = false;
  std::int64_t layers = 1;  ///< number of stacked layers
  double dropout = 0;       ///< probability of dropping an element between stacked layers in training
};

/// Stacked recurrent layers in one or two directions: [N, L, in] to [N, L, hidden], or [N, L, 2 * hidden]
/// with the reverse direction last. Optional further inputs are initial states [N, layers * D, hidden], with
/// D directions and the first layer first: the hidden states and, for an LSTM, the cell states.
///
/// Parameters have PyTorch's names: weight_ih, weight_hh, bias_ih, bias_hh. The reverse direction adds
/// `_reverse`. Several layers add `_l0`, `_l1`, .. before it. Initial values are uniform within 1 /
/// sqrt(hidden).
class Recurrent : public Module {
 public:
  enum class Kind : unsigned char { lstm, gru, rnn_tanh, rnn_relu };
  /// Throws ArgumentError for sizes below 1 and a dropout outside 0 to 1.
  Recurrent(Kind kind, const RecurrentOptions& options);
  Recurrent(Kind kind, std::int64_t in, std::int64_t hidden, bool bidirectional = false)
      : Recurrent(kind, {.in = in, .hidden = hidden, .bidirectional = bidirectional}) {}
  [[nodiscard]] std::string type() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] const RecurrentOptions& options() const noexcept { return options_; }
  /// Returns the number of directions, D.
  [[nodiscard]] std::size_t ways() const noexcept { return options_.bidirectional ? 2 : 1; }

 protected:
  struct Adopt {};
  Recurrent(Adopt, const Recurrent& other);
  /// Returns a new layer with the same parameters.
  [[nodiscard]] static std::shared_ptr<Recurrent> sharing(const Recurrent& other);
  Variable forward(const Variable& x) override { return forward(std::vector<Variable>{x}); }
  Variable forward(const std::vector<Variable>& inputs) override;

  /// Returns the weights. Entry i belongs to layer i / D and direction i % D.
  [[nodiscard]] const std::vector<ops::RecurrentWeights>& weights() const noexcept { return weights_; }
  /// Returns the weights that the computation uses.
  [[nodiscard]] virtual ops::RecurrentWeights used_weights(std::size_t i) const { return weights_[i]; }
  [[nodiscard]] virtual ops::DynamicRange range() const { return ops::DynamicRange::none; }
  /// Returns the suffix of parameter names, like "_l1_reverse" for the fourth of four.
  [[nodiscard]] std::string suffix(std::size_t i) const;

 private:
  [[nodiscard]] Variable one_way(const Variable& x, const std::vector<Variable>& inputs, std::size_t i) const;
  [[nodiscard]] Variable state(const std::vector<Variable>& inputs, std::size_t which, std::size_t i) const;

  Kind kind_;
  RecurrentOptions options_;
  std::vector<ops::RecurrentWeights> weights_;
};

}  // namespace fq
