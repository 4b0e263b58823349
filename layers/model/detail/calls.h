#pragma once

/// What a model did, with the values at hand.

#include <string>
#include <vector>

#include "fakequant/core/trace.h"
#include "fakequant/core/variable.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// One call of one operator. Codes and their grids can be read from the variables, which are on `meta`.
struct Call {
  std::string path, op;
  Attributes attributes;
  std::vector<Variable> inputs;
  Variable output;

  [[nodiscard]] const Attribute* attribute(std::string_view name) const;
  /// Throws ArgumentError when the call has none of that name and type.
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

/// Runs the model in evaluation on `meta` with an input of that shape, batch included.
[[nodiscard]] Calls record_calls(Module& model, const Shape& input_shape);

}  // namespace fq::detail
