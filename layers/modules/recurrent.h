#pragma once

/// Recurrent layers, by ops::lstm and ops::gru (core/ops/recurrent.h).
///
///     Recurrent layer(Recurrent::Kind::gru, 8, 64, true);  // [N, L, 8] to [N, L, 128]

#include "fakequant/core/ops/recurrent.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// One layer, one way or both ways along a sequence: [N, L, in] to [N, L, hidden], or [N, L, 2 * hidden], the
/// way back behind. Called with one input, or with initial states [N, D, hidden] behind it, D the number of
/// ways: the hidden ones and, of an LSTM, the cells. Parameters as PyTorch names them: weight_ih, weight_hh,
/// bias_ih, bias_hh, and the same with `_reverse`; uniform within 1 / sqrt(hidden) at first.
class Recurrent : public Module {
 public:
  enum class Kind : unsigned char { lstm, gru };
  /// Throws ArgumentError for sizes below 1.
  Recurrent(Kind kind, std::int64_t in, std::int64_t hidden, bool bidirectional = false);
  [[nodiscard]] std::string type() const override { return kind_ == Kind::lstm ? "lstm" : "gru"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override { return forward(std::vector<Variable>{x}); }
  Variable forward(const std::vector<Variable>& inputs) override;

 private:
  [[nodiscard]] Variable one_way(const std::vector<Variable>& inputs, std::size_t way) const;

  Kind kind_;
  std::vector<ops::RecurrentWeights> ways_;
};

}  // namespace fq
