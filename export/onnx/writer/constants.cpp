// Parameters and other constants, as floats or codes.

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/onnx/writer/exporting.h"
#include "fakequant/export/onnx/writer/grids.h"
#include "fakequant/export/onnx/writer/weights.h"

namespace fq::detail {

/// The real codes of a parameter: the trace has only their shape.
QuantizedTensor Exporting::codes_of(const Call& call) const {
  const NoGrad no_grad;
  const Variable& input = call.inputs.at(0);
  const Grid& grid = call.output.quantized()->grid;
  const auto found = quantizers_.find(grid.name);
  const Variable codes =
      found != quantizers_.end() ? found->second->weight(input) : ops::quantize(input, grid);
  FQ_CHECK(codes.quantized() != nullptr, "export_onnx", "'{}' gives no codes", grid.name);
  return *codes.quantized();
}

const QuantizedTensor* Exporting::constant_codes(const Variable& value) const {
  const auto found = values_.find(value.node().get());
  return found == values_.end() || !found->second.codes ? nullptr : &*found->second.codes;
}

std::string Exporting::name_of(const Variable& value, const std::string& otherwise) const {
  const auto found = parameters_.find(value.node().get());
  return found == parameters_.end() ? otherwise : found->second;
}

bool Exporting::is_integer_factor(const Variable& weight) const {
  return std::ranges::any_of(early_.readers(weight),
                             [](const Call* reader) { return reader->output.accumulator() != nullptr; });
}

std::string Exporting::add_constant(const Variable& value, Value& known, Form form) {
  const bool transposed = form == Form::transposed;
  if (known.codes) {
    std::string name = known.codes->grid.name;
    if (name.ends_with("_quantizer")) name.erase(name.size() - std::string_view("_quantizer").size());
    return add_weight(graph_, options_, name, *known.codes, {transposed, is_integer_factor(value)});
  }
  const Tensor floats = value.tensor();
  return graph_.constant(name_of(value, "constant"), transposed
                                                         ? ops::transpose(Variable(floats), {1, 0}).tensor()
                                                         : floats.to(Layout::row_major));
}

std::string Exporting::floats(const Variable& value, Form form) {
  Value& known = values_[value.node().get()];
  std::string& name = form == Form::as_is ? known.floats : known.transposed;
  if (!name.empty()) return name;
  if (known.maker != nullptr) known.floats = unrolled(*known.maker, known.rows);
  if (!name.empty()) return name;
  if (form == Form::transposed && !known.floats.empty() && !known.codes && !value.is_leaf())
    return name = graph_.add("Transpose", known.floats + ".transposed", {known.floats},
                             {{"perm", std::vector<std::int64_t>{1, 0}}});
  return name = add_constant(value, known, form);
}

std::string Exporting::put_on_grid(const Call& call, const Variable& input, Grid grid) {
  const Value* from = values_.contains(input.node().get()) ? &values_.at(input.node().get()) : nullptr;
  if (from == nullptr || (from->floats.empty() && input.is_leaf())) {
    const NoGrad no_grad;
    return add_weight(graph_, options_, name_of(input, node_name(call)),
                      fq::quantize(input.tensor(), grid, false), {});
  }
  return add_grid(graph_, options_, {floats(input), input.rank(), grid, node_name(call), node_name(call)});
}

}  // namespace fq::detail
