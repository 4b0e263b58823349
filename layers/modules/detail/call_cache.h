#pragma once

/// Results of module calls, kept for other runs of a model on the same input.

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

/// The first run keeps what every module gave for what it was given. In a later run a module that has not
/// changed and is given the same values gives what it gave: only what lies behind a change is computed, in
/// any model, whatever its forward functions do between the calls of its modules. Same values are those of
/// one storage or of equal bits, so that a run has the bits it would have without. What a module gives may
/// depend only on its inputs, parameters, buffers and the modules below it; quantizers always run. Not for
/// training: nothing may be recorded. Memory: every value between modules in one run.
class CallCache {
 public:
  /// `counted` are paths of modules whose computed calls count.
  explicit CallCache(std::set<std::string> counted) : counted_(std::move(counted)) {}

  /// Forgets everything; calls are kept from now on.
  void keep();
  /// Calls are looked up from now on. `changed` are modules that differ from the run that was kept,
  /// with all that contain them.
  void look_up(std::unordered_set<const Module*> changed);
  /// Nothing is looked up or kept from now on.
  void pass();
  /// Calls of counted modules that were computed since it was made.
  [[nodiscard]] std::int64_t computed() const noexcept { return computed_; }

  /// For Module.
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

/// Of this thread, or null.
[[nodiscard]] inline CallCache* call_cache() noexcept { return context().call_cache; }

/// Installs a cache on this thread while it lives.
class CallCacheScope : public ScopedValue<CallCache*> {
 public:
  explicit CallCacheScope(CallCache& cache) : ScopedValue(context().call_cache, &cache) {}
};

}  // namespace fq::detail
