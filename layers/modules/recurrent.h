#pragma once

/// Recurrent layers, by ops::lstm, ops::gru and ops::rnn (core/ops/recurrent.h).
///
///     Recurrent layer(Recurrent::Kind::gru, 8, 64, true);                        // [N, L, 8] to [N, L, 128]
///     Recurrent deep(Recurrent::Kind::lstm, {.in = 8, .hidden = 64, .layers = 2, .dropout = 0.2});

#include "fakequant/core/ops/recurrent.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

struct RecurrentOptions {
  std::int64_t in = 0, hidden = 0;
  bool bidirectional = false;
  std::int64_t layers = 1;  ///< on top of one another
  double dropout = 0;       ///< in training, of what one layer gives the next
};

/// Layers one way or both ways along a sequence: [N, L, in] to [N, L, hidden], or [N, L, 2 * hidden], the way
/// back behind. Called with one input, or with initial states [N, layers * D, hidden] behind it, D the number
/// of ways, the first layer's first: the hidden ones and, of an LSTM, the cells. Parameters as PyTorch names
/// them: weight_ih, weight_hh, bias_ih, bias_hh, the same with `_reverse`, and of several layers with
/// `_l0`, `_l1`, .. before that; uniform within 1 / sqrt(hidden) at first.
class Recurrent : public Module {
 public:
  enum class Kind : unsigned char { lstm, gru, rnn_tanh, rnn_relu };
  /// Throws ArgumentError for sizes below 1 and a dropout outside of 0 to 1.
  Recurrent(Kind kind, const RecurrentOptions& options);
  Recurrent(Kind kind, std::int64_t in, std::int64_t hidden, bool bidirectional = false)
      : Recurrent(kind, {.in = in, .hidden = hidden, .bidirectional = bidirectional}) {}
  [[nodiscard]] std::string type() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] const RecurrentOptions& options() const noexcept { return options_; }
  /// Directions, D.
  [[nodiscard]] std::size_t ways() const noexcept { return options_.bidirectional ? 2 : 1; }

 protected:
  struct Adopt {};
  Recurrent(Adopt, const Recurrent& other);
  /// A layer of its own with the same parameters.
  [[nodiscard]] static std::shared_ptr<Recurrent> sharing(const Recurrent& other);
  Variable forward(const Variable& x) override { return forward(std::vector<Variable>{x}); }
  Variable forward(const std::vector<Variable>& inputs) override;

  /// Of layer i / D, way i % D.
  [[nodiscard]] const std::vector<ops::RecurrentWeights>& weights() const noexcept { return weights_; }
  /// What that one computes by.
  [[nodiscard]] virtual ops::RecurrentWeights used_weights(std::size_t i) const { return weights_[i]; }
  [[nodiscard]] virtual ops::DynamicRange range() const { return ops::DynamicRange::none; }
  /// "_l1_reverse" of the third of four.
  [[nodiscard]] std::string suffix(std::size_t i) const;

 private:
  [[nodiscard]] Variable one_way(const Variable& x, const std::vector<Variable>& inputs, std::size_t i) const;
  [[nodiscard]] Variable state(const std::vector<Variable>& inputs, std::size_t which, std::size_t i) const;

  Kind kind_;
  RecurrentOptions options_;
  std::vector<ops::RecurrentWeights> weights_;
};

}  // namespace fq
