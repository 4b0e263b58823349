#include "fakequant/core/ops/operators.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "bindings.h"

namespace fq::python {
namespace {

/// "alpha" or, for a choice, one of its texts; None where the option is required.
nb::object value_of(const OperatorOption& option) {
  if (option.is_required()) return nb::none();
  if (option.is_choice()) return nb::cast(option.choices[0]);
  return option.is_integer ? nb::object(nb::int_(static_cast<std::int64_t>(option.fallback)))
                           : nb::object(nb::float_(option.fallback));
}

nb::list words_of(std::string_view text) {
  nb::object words = nb::cast(text).attr("split")();
  return nb::list(words);
}

nb::dict row_of(const OperatorSchema& row) {
  nb::list options;
  for (const OperatorOption& option : row.options()) {
    nb::dict out;
    out["name"] = option.name;
    out["default"] = value_of(option);
    out["torch"] = option.torch;
    options.append(out);
  }
  nb::dict out;
  out["name"] = row.name;
  out["inputs"] = row.inputs;
  out["options"] = options;
  out["torch"] = words_of(row.torch);
  out["torch_module"] = row.torch_module;
  return out;
}

}  // namespace

void bind_operators(nb::module_& module) {
  module.def(
      "operators",
      [] {
        nb::list rows;
        for (const OperatorSchema& row : operator_table()) rows.append(row_of(row));
        return rows;
      },
      "The operator table: a dict for each operator with its name, number of inputs, options, and names in "
      "torch. "
      "`inputs` is 0 where the number varies or the operator has weights.");
}

}  // namespace fq::python
