#pragma once

/// Cached results of module calls, for several runs of a model on the same input.

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fakequant/core/context.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// The first run stores inputs and output of every module. In a later run, an unchanged module returns the
/// stored output if its inputs are the same. Only modules after a change are computed, in any model and
/// with any code between module calls. Two values are the same if they share the storage or have
/// equal bits. A run with the cache therefore has the bits of a run without it.
///
/// The output of a module may depend only on its inputs, parameters, buffers and submodules. Quantizers
/// always run. Not for training: recording must be off. Memory: all values between modules in one run.
class CallCache {
 public:
  /// `counted` are the paths of modules whose computed calls are counted.
  explicit CallCache(std::set<std::string> counted) : counted_(std::move(counted)) {}

  /// Clears the cache and starts storing calls.
  void keep();
  /// Starts looking up calls. `changed` are the modules that differ from the stored run, and all modules that
  /// contain them.
  void look_up(std::unordered_set<const Module*> changed);
  /// Stops looking up and storing calls.
  void pass();
  /// Returns the number of computed calls of counted modules since construction.
  [[nodiscard]] std::int64_t computed() const noexcept { return computed_; }

  /// Called by Module.
  Variable call(const Module& module, const std::vector<Variable>& inputs,
                const std::function<Variable()>& compute);

 private:
  struct Call {
    std::vector<Variable> inputs;
    Variable output;
  };
  enum class Mode { pass, keep, look_up };

  [[nodiscard]] const Call* find(const Module& module, const std::vector<Variable>& inputs) const;

  std::set<std::string> counted_;
  Mode mode_ = Mode::pass;
  std::unordered_map<const Module*, std::vector<Call>> calls_;
  std::unordered_set<const Module*> changed_;
  std::int64_t computed_ = 0;
};

/// Returns the cache of this thread, or null.
[[nodiscard]] inline CallCache* call_cache() noexcept { return context().call_cache; }

/// Installs a cache on this thread for the lifetime of the scope.
class CallCacheScope : public ScopedValue<CallCache*> {
 public:
  explicit CallCacheScope(CallCache& cache) : ScopedValue(context().call_cache, &cache) {}
};

}  // namespace fq::detail
