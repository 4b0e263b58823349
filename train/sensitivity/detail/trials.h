#pragma once

/// Variants of a model that differ from it in a few modules, measured against it.

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ranks/communicator.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq::detail {

using ModuleSlot = std::shared_ptr<Slot>;
using Swaps = std::vector<std::pair<ModuleSlot, std::shared_ptr<Module>>>;

/// Puts modules in slots while it lives.
class SwapScope {
 public:
  explicit SwapScope(const Swaps& swaps);
  ~SwapScope();
  SwapScope(const SwapScope&) = delete;  // tied to its block
  SwapScope& operator=(const SwapScope&) = delete;

 private:
  Swaps before_;
};

struct TrialOptions {
  std::string function;      ///< in whose name errors are
  std::int64_t samples = 0;  ///< 0: all
  bool cached = true;
  std::set<std::string> counted = {};  ///< paths of modules whose calls count
  Communicator* ranks = nullptr;       ///< which share out the trials; null for this process alone
};

struct TrialReport {
  Evaluation reference;         ///< of the model as it stands
  std::vector<Damage> damages;  ///< one a trial
  std::int64_t samples = 0;
  std::int64_t runs = 0;       ///< calls of counted modules that were computed
  std::int64_t pass_runs = 0;  ///< in the passes of the model as it stands
};

/// Runs the model as it stands, which must be in evaluation mode, and each trial, batch by batch. Throws as
/// `sensitivity`.
[[nodiscard]] TrialReport run_trials(Module& model, DataLoader& data, const std::vector<Swaps>& trials,
                                     const TrialOptions& options);

}  // namespace fq::detail
