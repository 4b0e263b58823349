#pragma once

/// Records the operator calls of a model, with their values.

#include <string>
#include <vector>

#include "fakequant/core/trace.h"
#include "fakequant/core/variable.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// One call of one operator. The variables are on `meta`. Codes and their grids are readable.
struct Call {
  std::string path, op;
  Attributes attributes;
  std::vector<Variable> inputs;
  Variable output;

  [[nodiscard]] const Attribute* attribute(std::string_view name) const;
  /// Throws ArgumentError if the call has no attribute with that name and type.
  template <class T>
  [[nodiscard]] const T& get(std::string_view name) const {
    const Attribute* found = attribute(name);
    if (found == nullptr || !std::holds_alternative<T>(*found)) missing(name);
    return std::get<T>(*found);
  }

 private:
  [[noreturn]] void missing(std::string_view name) const;
};

struct Calls {
  std::vector<Call> list;  ///< in order of execution
  Variable input, output;
};

/// Runs the model in evaluation mode on `meta` and records its calls. `input_shape` includes the batch.
[[nodiscard]] Calls record_calls(Module& model, const Shape& input_shape);

}  // namespace fq::detail
