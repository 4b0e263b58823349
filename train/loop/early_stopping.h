#pragma once

/// Which epoch was best, and when to stop waiting for a better one.

#include <cstdint>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/loop/evaluate.h"

namespace fq {

/// Better is a higher accuracy or, at the same one, a lower loss; an epoch whose loss is NaN or infinite is
/// never the best.
class EarlyStopping {
 public:
  /// Stops after `patience` epochs in a row that were not the best; 0 never does.
  /// Throws ArgumentError for a negative one.
  explicit EarlyStopping(std::int64_t patience = 0);

  /// Takes the evaluation of the next epoch in. True when it is the best so far.
  bool update(const Evaluation& evaluation);
  [[nodiscard]] bool should_stop() const noexcept { return patience_ > 0 && waited_ >= patience_; }

  /// -1 before the first.
  [[nodiscard]] std::int64_t best_epoch() const noexcept { return best_epoch_; }
  [[nodiscard]] double best_accuracy() const noexcept { return best_accuracy_; }
  [[nodiscard]] double best_loss() const noexcept { return best_loss_; }

  /// Attributes `best_epoch`, `best_accuracy`, `best_loss`, `epochs`, `waited`.
  [[nodiscard]] StateDict state_dict() const;
  /// Throws ArgumentError for what is not such a state.
  void load_state(const StateDict& state);

 private:
  std::int64_t patience_;
  std::int64_t epochs_ = 0, waited_ = 0, best_epoch_ = -1;
  double best_accuracy_ = 0, best_loss_ = 0;
};

}  // namespace fq
