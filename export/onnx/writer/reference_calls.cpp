#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/writer/exporting.h"
#include "fakequant/export/onnx/writer/grids.h"

namespace fq::detail {
namespace {

/// Returns the grid that the reference exporters write: scale = amax / bound, with one range or one per index
/// of an axis.
Grid reference_grid(const Call& call) {
  const Format format = call.op == "scaled_e4m3"
                            ? Format(FloatFormat{4, 3})
                            : Format(IntFormat{static_cast<int>(call.get<std::int64_t>("num_bits")),
                                               call.get<bool>("unsigned"), call.get<bool>("narrow_range")});
  const Variable& amax = call.inputs.at(1);
  FQ_CHECK(!amax.device().is_meta(), "export_onnx",
           "the amax of {} in '{}' is computed from the input: use a constant", call.op, call.path);
  FQ_CHECK(!call.get<bool>("bias"), "export_onnx",
           "{} in '{}' shifts its input by a bias: QuantizeLinear cannot", call.op, call.path);
  const Shape ranges = amax.shape();
  Shape kept;
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (ranges[i] > 1)
      kept.push_back(static_cast<std::int64_t>(i) - static_cast<std::int64_t>(ranges.size()));
  FQ_CHECK(kept.size() <= 1, "export_onnx", "the amax of {} in '{}' is {}: a graph has ranges along one axis",
           call.op, call.path, to_string(ranges));
  if (kept.empty()) return Grid::from_amax(format, {}, amax.tensor().reshape({}));
  return Grid::from_amax(format, Granularity::per_axis(static_cast<int>(kept[0])),
                         amax.tensor().reshape({amax.numel()}));
}

}  // namespace

void emit_fake_quant(Exporting& out, const Call& call) {
  out.give(call, out.put_on_grid(call, call.inputs.at(0), reference_grid(call)));
}

void emit_tensor_quant(Exporting& out, const Call& call) {
  const Grid grid = reference_grid(call);
  const std::string name = Exporting::node_name(call);
  const std::string codes =
      add_codes(out.graph(), out.options(), {out.input(call, 0), call.inputs[0].rank(), grid, name, name});
  const bool integers = call.output.tensor().dtype() == DType::i32;
  out.node(call, "Cast", {codes}, {{"to", std::int64_t{integers ? 6 : 1}}});
}

void emit_tensor_quant_scale(Exporting& out, const Call& call) {
  if (!out.is_read(call.output)) return;
  out.give(call,
           out.graph().constant(Exporting::node_name(call) + ".tensor_quant_scale", call.output.tensor()));
}

}  // namespace fq::detail
