#pragma once

/// Operators that are made of others, and are one in a trace.

#include <string_view>

#include "fakequant/core/ops/detail/operator.h"

namespace fq::detail {

/// What `compute` makes of the inputs by other operators, reported to the trace as one operator `op`.
template <class F>
[[nodiscard]] Variable composite(std::string_view op, std::vector<Variable> inputs, Attributes attributes,
                                 F&& compute) {
  Variable y;
  {
    const ScopedValue<Recorder*> silent(context().recorder, nullptr);
    y = compute();
  }
  if (recorder() != nullptr) recorder()->on_op(op, inputs, y, std::move(attributes));
  return y;
}

}  // namespace fq::detail
