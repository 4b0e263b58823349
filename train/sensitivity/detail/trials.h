#pragma once

/// Measures variants of a model that differ from it in a few modules.

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

/// Puts modules into slots until the end of the block.
class SwapScope {
 public:
  explicit SwapScope(const Swaps& swaps);
  ~SwapScope();
  SwapScope(const SwapScope&) = delete;  // tied to its block
  SwapScope& operator=(const SwapScope&) = delete;

 private:
  Swaps before_;
};

/// Options of `run_trials`.
struct TrialOptions {
  std::string function;      ///< Function that error messages name.
  std::int64_t samples = 0;  ///< Number of samples; 0 for all.
  bool cached = true;
  std::set<std::string> counted = {};  ///< Paths of the modules whose calls are counted.
  Communicator* ranks = nullptr;       ///< Ranks that share the trials; null for one process.
};

/// Result of `run_trials`.
struct TrialReport {
  Evaluation reference;         ///< Result of the given model.
  std::vector<Damage> damages;  ///< Damage of each trial.
  std::int64_t samples = 0;
  std::int64_t runs = 0;       ///< Computed calls of counted modules.
  std::int64_t pass_runs = 0;  ///< Calls of counted modules in the passes of the given model.
};

/// Runs the given model, which must be in evaluation mode, and each trial, batch by batch. Throws as
/// `sensitivity` does.
[[nodiscard]] TrialReport run_trials(Module& model, DataLoader& data, const std::vector<Swaps>& trials,
                                     const TrialOptions& options);

}  // namespace fq::detail
