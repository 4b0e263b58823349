// Members of Exporting that create values: constants, floats, values on grids, and rows of a matrix.

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/onnx/writer/exporting.h"
#include "fakequant/export/onnx/writer/grids.h"

namespace fq::detail {

void Exporting::check_grid(const Call& call) const {
  const Grid& grid = call.output.quantized()->grid;
  if (const auto found = quantizers_.find(grid.name); found != quantizers_.end())
    FQ_CHECK(!found->second->descriptor().dynamic() && !found->second->descriptor().has_dynamic_blocks(),
             "export_onnx",
             "'{}' takes its range from each input: QuantizeLinear has constants, calibrate a static range",
             call.path);
  check_activation_grid(grid, call.output.rank(), options_.target, node_name(call));
}

void Exporting::quantize(const Call& call) {
  Value& out = values_[call.output.node().get()];
  const Variable& input = call.inputs.at(0);
  if (is_constant(input)) {
    out.codes = parameter_codes(call);
    return;
  }
  const Grid& grid = call.output.quantized()->grid;
  check_grid(call);
  const Value& from = values_.at(input.node().get());
  const std::string& codes = code_names_.at(&call);
  // The value was rounded early, to this grid and with this name: its codes are the codes of the quantizer.
  if (from.grid != nullptr && same_grid(*from.grid, grid) && from.grid_codes == codes)
    out = from;
  else if (!from.rows.empty() && from.grid == nullptr)
    put_rows(call, from.rows, grid, false);
  else
    put(call, floats(input), grid, false);
}

void Exporting::alias(const Call& call) {
  const Variable& input = call.inputs.at(0);
  // A constant has no name until it is first used.
  if (is_constant(input)) (void)floats(input);
  values_[call.output.node().get()] = values_.at(input.node().get());
}

std::string Exporting::codes_name(const Call& call, const Grid& grid) const {
  if (call.op == "quantize") return code_names_.at(&call);
  const auto& readers = early_.readers(call.output);
  // A value that is rounded early has the name of the quantizer that reads it, as in `predict --codes`.
  const auto direct = std::ranges::find(readers, "quantize", &Call::op);
  return call.output.quantized() == nullptr && direct != readers.end() ? code_names_.at(*direct)
                                                                       : grid.name + ".at." + node_name(call);
}

void Exporting::put(const Call& call, std::string floats, const Grid& grid, bool cut) {
  const std::string codes = codes_name(call, grid);
  Value& out = values_[call.output.node().get()];
  out.floats =
      add_grid(graph_, options_, {std::move(floats), call.output.rank(), grid, node_name(call), codes, cut});
  out.grid = &grid;
  out.grid_codes = codes;
  // Unsigned codes have no values below 0 either.
  out.cut = cut || (grid.format.is_integer() && grid.format.integer().is_unsigned);
}

std::string Exporting::unrolled(const Call& maker, const std::string& matrix) {
  const Shape shape = open_shapes_.at(&maker);
  const auto sizes = Tensor::from<std::int64_t>(shape, {static_cast<std::int64_t>(shape.size())});
  const std::string name = node_name(maker) + ".unrolled";
  return graph_.add("Reshape", name, {matrix, graph_.constant(name + ".shape", sizes)});
}

// Rounds before and after the reshape: engines move codes through it only if both sides have the same grid.
void Exporting::put_rows(const Call& call, const std::string& matrix, const Grid& grid, bool cut) {
  const std::string codes = codes_name(call, grid);
  const std::string rows =
      add_grid(graph_, options_, {matrix, 2, grid, node_name(call), codes + ".rows", cut});
  put(call, unrolled(call, rows), grid, false);
  Value& out = values_[call.output.node().get()];
  out.rows = rows;
  out.cut = out.cut || cut;
}

void Exporting::give(const Call& call, std::string name) {
  // A value whose readers all round it to one grid is rounded here, so that engines move codes instead of
  // floats.
  const QuantizedTensor* codes = call.output.quantized();
  const Grid* early = early_.early_grid(call.output);
  if (codes != nullptr || early != nullptr)
    return put(call, std::move(name), codes != nullptr ? codes->grid : *early,
               codes == nullptr && early_.is_cut(call.output));
  values_[call.output.node().get()].floats = std::move(name);
}

void Exporting::give_rows(const Call& call, std::string matrix) {
  if (const Grid* early = early_.early_grid(call.output))
    return put_rows(call, matrix, *early, early_.is_cut(call.output));
  Value& out = values_[call.output.node().get()];
  out.rows = std::move(matrix);
  out.maker = &call;
}

std::string Exporting::rows(const Call& call, std::size_t i) {
  const Variable& input = call.inputs.at(i);
  Value& value = values_.at(input.node().get());
  // The rows of an earlier linear layer are reused: Gemm after Gemm needs no Reshape in between.
  if (!value.rows.empty()) return value.rows;
  const Grid& grid = input.quantized()->grid;
  const std::string name = node_name(call) + ".rows";
  const auto sizes = Tensor::from<std::int64_t>({-1, input.shape().back()}, {2});
  const std::string matrix =
      graph_.add("Reshape", name, {floats(input), graph_.constant(name + ".shape", sizes)});
  return value.rows =
             add_grid(graph_, options_, {matrix, 2, grid, node_name(call), grid.name + ".at." + name});
}

bool Exporting::give_relu(const Call& call) {
  const Value from = values_.at(call.inputs.at(0).node().get());
  const Grid* grid = early_.shared_grid(call.output);
  const bool on_codes = options_.target == Target::ort && grid != nullptr && has_byte_codes(grid->format);
  const bool rows = !from.rows.empty() && from.grid == nullptr;
  // A Relu before signed codes would keep ONNX Runtime from fusing the product in integers. A Clip of the
  // codes at 0 gives the same codes. Unsigned codes are not below 0 anyway.
  const bool is_signed = on_codes && !grid->format.integer().is_unsigned;
  if (on_codes && (is_signed || (from.grid != nullptr && from.cut))) {
    if (rows)
      put_rows(call, from.rows, *grid, true);
    else
      put(call, floats(call.inputs[0]), *grid, !from.cut);
    return true;
  }
  if (rows) give_rows(call, graph_.add("Relu", node_name(call), {from.rows}));
  return rows;
}

/// Returns the actual codes of a parameter. The trace has only their shape.
QuantizedTensor Exporting::parameter_codes(const Call& call) const {
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

std::string Exporting::parameter_name(const Variable& value, const std::string& otherwise) const {
  const auto found = parameters_.find(value.node().get());
  return found == parameters_.end() ? otherwise : found->second;
}

bool Exporting::is_integer_factor(const Variable& weight) const {
  // Products of codes have sums that are not rounded yet.
  return std::ranges::any_of(early_.readers(weight),
                             [](const Call* reader) { return reader->output.accumulator() != nullptr; });
}

std::string Exporting::add_constant(const Variable& value, Value& known, Form form) {
  const bool transposed = form == Form::transposed;
  if (known.codes) {
    std::string name = known.codes->grid.name;
    // "conv1.weight_quantizer" has the codes of "conv1.weight".
    if (name.ends_with("_quantizer")) name.erase(name.size() - std::string_view("_quantizer").size());
    return add_weight(graph_, options_, name, *known.codes, {transposed, is_integer_factor(value)});
  }
  const Tensor floats = value.tensor();
  return graph_.constant(
      parameter_name(value, "constant"),
      transposed ? ops::transpose(Variable(floats), {1, 0}).tensor() : floats.to(Layout::row_major));
}

std::string Exporting::floats(const Variable& value, Form form) {
  Value& known = values_[value.node().get()];
  std::string& name = form == Form::as_is ? known.floats : known.transposed;
  if (!name.empty()) return name;
  if (known.maker != nullptr) known.floats = unrolled(*known.maker, known.rows);
  if (!name.empty()) return name;
  // A computed matrix is transposed in the graph, a constant at export.
  if (form == Form::transposed && !known.floats.empty() && !known.codes && !value.is_leaf())
    return name = graph_.add("Transpose", known.floats + ".transposed", {known.floats},
                             {{"perm", std::vector<std::int64_t>{1, 0}}});
  return name = add_constant(value, known, form);
}

std::string Exporting::put_on_grid(const Call& call, const Variable& input, Grid grid) {
  const Value* from = values_.contains(input.node().get()) ? &values_.at(input.node().get()) : nullptr;
  if (from == nullptr || (from->floats.empty() && input.is_leaf())) {
    const NoGrad no_grad;
    return add_weight(graph_, options_, parameter_name(input, node_name(call)),
                      fq::quantize(input.tensor(), grid, false), {});
  }
  return add_grid(graph_, options_, {floats(input), input.rank(), grid, node_name(call), node_name(call)});
}

}  // namespace fq::detail
