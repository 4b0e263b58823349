#pragma once

/// Runs of a model that only look at it.

#include <memory>
#include <utility>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// While it lives the model is in evaluation mode; then each of its modules has the mode that it had, also
/// one that stays in evaluation mode while the others train, such as a frozen batch norm. A model that is in
/// evaluation mode already is not written to, so that several threads may run it. Tied to its block.
class EvaluationMode {
 public:
  explicit EvaluationMode(Module& model);
  ~EvaluationMode();
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  Module& model_;
  bool training_;
  std::vector<std::pair<std::shared_ptr<Slot>, bool>> below_;
};

}  // namespace fq::detail
