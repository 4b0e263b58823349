#pragma once

/// Scopes that change a model for a block of code and restore it.

#include <memory>
#include <utility>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// Sets evaluation mode for a block, then restores the mode of each module. A frozen batch norm stays in
/// evaluation mode. A model in evaluation mode is not written to, so several threads may run it.
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

/// Moves a model to the CPU for a block, then back to its device. Gradients are dropped.
class OnHost {
 public:
  explicit OnHost(Module& model);
  /// If the GPU is lost, the model stays on the host, and the next call on the GPU throws.
  ~OnHost();
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

 private:
  Module& model_;
  Device device_;
};

}  // namespace fq::detail
