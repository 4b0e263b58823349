#pragma once

/// Scopes that change a model for a block of code and restore it.

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

/// While it lives the model is on the CPU; then it is where it was, its gradients forgotten. Tied to its
/// block.
class OnHost {
 public:
  explicit OnHost(Module& model);
  /// Where the GPU is lost the model stays on the host: the next call there says so.
  ~OnHost();
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

 private:
  Module& model_;
  Device device_;
};

}  // namespace fq::detail
