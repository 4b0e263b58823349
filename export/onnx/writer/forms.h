#pragma once

/// ONNX forms of operators, a table for each kind, and helpers.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/export/onnx/writer/exporting.h"

namespace fq::detail {

using Numbers = std::vector<std::int64_t>;
using Emit = void (*)(Exporting&, const Call&);
using Forms = std::map<std::string_view, Emit>;

[[nodiscard]] std::vector<std::string> all_inputs(Exporting& out, const Call& call);
/// Adds a constant with that name: a scalar, or a list of integers.
std::string number(Exporting& out, const std::string& name, double value);
std::string integers(Exporting& out, const std::string& name, const Numbers& values);
/// Adds the output shape of a call as an input of Reshape. 0 copies the input's batch, -1 follows from the
/// batch.
std::string open_shape(Exporting& out, const Call& call);

/// Outputs the booleans of a comparison as 1 and 0.
void give_numbers(Exporting& out, const Call& call, const std::string& truth);

[[nodiscard]] Forms arithmetic_forms();
[[nodiscard]] Forms attention_forms();
[[nodiscard]] Forms function_forms();
[[nodiscard]] Forms norm_forms();
[[nodiscard]] Forms move_forms();
[[nodiscard]] Forms recurrent_forms();

}  // namespace fq::detail
