#pragma once

/// What labels of classes say, for the kernels of cross entropy.

#include <cstdint>
#include <optional>

#include "fakequant/core/numerics/host_device.h"
#include "fakequant/core/tensor.h"

namespace fq {

struct LabelRule {
  double smoothing = 0;
  std::optional<std::int64_t> ignored = {};
  Tensor weights =
      {};  ///< f64 [C + 1] on the labels' device: of the classes, then their sum; undefined for 1
};

namespace detail {

/// The same for kernels: whether a row counts.
struct IgnoredLabel {
  bool any;
  std::int64_t label;

  explicit IgnoredLabel(const LabelRule& rule)
      : any(rule.ignored.has_value()), label(rule.ignored.value_or(0)) {}
  [[nodiscard]] FQ_HD bool counts(std::int64_t each) const { return !any || each != label; }
};

}  // namespace detail
}  // namespace fq
