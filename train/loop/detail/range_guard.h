#pragma once

/// Learned ranges that stay within reach of where they are.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq {
class Module;
}

namespace fq::detail {

/// A step of an optimizer at most halves or doubles a learned range, and leaves it 2^-23 or more, the least
/// that scales are made of: a rate that is too high takes ranges to zero or infinity, from where no gradient
/// leads back. It has no state but what it counts; NaN stays, for the checks of the run to find.
class RangeGuard {
 public:
  explicit RangeGuard(Module& model);

  /// Before and after each step. Waits for a GPU where there is a learned range.
  void before();
  void after();
  /// How often a range was held since the guard was made, and the parameters that were, in the model's order.
  [[nodiscard]] std::int64_t held() const noexcept { return held_; }
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  struct Range {
    std::string name;
    Variable amax;
    std::vector<float> before = {};
    bool was_held = false;
  };
  std::vector<Range> ranges_;
  std::int64_t held_ = 0;
};

}  // namespace fq::detail
