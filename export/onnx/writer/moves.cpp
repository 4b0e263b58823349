#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/writer/forms.h"

namespace fq::detail {
namespace {

void reshape(Exporting& out, const Call& call) {
  out.node(call, "Reshape", {out.input(call, 0), open_shape(out, call)});
}

void flatten(Exporting& out, const Call& call) {
  if (call.get<std::int64_t>("start_axis") != 1) return reshape(out, call);
  out.node(call, "Flatten", {out.input(call, 0)}, {{"axis", std::int64_t{1}}});
}

void transpose(Exporting& out, const Call& call) {
  out.node(call, "Transpose", {out.input(call, 0)}, {{"perm", call.get<Numbers>("axes")}});
}

// A slice of the batch would have fixed bounds, and be wrong for every other batch.
void check_not_batch(Exporting& out, const Call& call, std::int64_t axis) {
  FQ_CHECK(out.open_shape(call)[static_cast<std::size_t>(axis)] >= 0, "export_onnx",
           "'{}' slices the batch, whose size is unknown in the graph", call.path);
}

void slice(Exporting& out, const Call& call) {
  const auto name = Exporting::node_name(call);
  const auto axis = call.get<std::int64_t>("axis"), step = call.get<std::int64_t>("step");
  check_not_batch(out, call, axis);
  std::vector<std::string> inputs{
      out.input(call, 0), integers(out, name + ".begin", {call.get<std::int64_t>("begin")}),
      integers(out, name + ".end", {call.get<std::int64_t>("end")}), integers(out, name + ".axis", {axis})};
  if (step != 1) inputs.push_back(integers(out, name + ".step", {step}));
  out.node(call, "Slice", std::move(inputs));
}

void index_select(Exporting& out, const Call& call) {
  const auto axis = call.get<std::int64_t>("axis");
  check_not_batch(out, call, axis);
  const std::string indices =
      integers(out, Exporting::node_name(call) + ".indices", call.get<Numbers>("indices"));
  out.node(call, "Gather", {out.input(call, 0), indices}, {{"axis", axis}});
}

/// Writes Expand. A size of 1 keeps the input's size, which is also right for the batch unless the batch is
/// created here.
void expand(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call);
  Numbers shape = out.open_shape(call);
  const bool repeats = !shape.empty() && shape[0] == -1 &&
                       (call.inputs[0].rank() < call.output.rank() || call.inputs[0].dim(0) == 1);
  for (auto& size : shape) size = size == -1 ? 1 : size;
  if (!repeats) return out.node(call, "Expand", {out.input(call, 0), integers(out, name + ".shape", shape)});
  const std::string rest = integers(out, name + ".sizes", {shape.begin() + 1, shape.end()});
  const std::string sizes =
      out.graph().add("Concat", name + ".shape", {out.batch(), rest}, {{"axis", std::int64_t{0}}});
  out.node(call, "Expand", {out.input(call, 0), sizes});
}

/// Returns the pads of the last axes and zeros for other axes: first the pads before, then the pads after.
std::string pads(Exporting& out, const Call& call) {
  const auto rank = static_cast<std::size_t>(call.output.rank());
  Numbers all;
  for (const char* side : {"before", "after"}) {
    const auto& given = call.get<Numbers>(side);
    all.insert(all.end(), rank - given.size(), 0);
    all.insert(all.end(), given.begin(), given.end());
  }
  return integers(out, Exporting::node_name(call) + ".pads", all);
}

void pad(Exporting& out, const Call& call) {
  const auto& mode = call.get<std::string>("mode");
  if (mode == "circular") out.graph().needs_opset(19);
  const std::string name = mode == "replicate" ? "edge" : mode == "circular" ? "wrap" : mode;
  std::vector<std::string> inputs{out.input(call, 0), pads(out, call)};
  if (const double value = call.get<double>("value"); mode == "constant" && value != 0)
    inputs.push_back(number(out, Exporting::node_name(call) + ".value", value));
  out.node(call, "Pad", std::move(inputs), {{"mode", name}});
}

// CRD is the order of PyTorch: channels before the rows and columns of a block.
void pixel_shuffle(Exporting& out, const Call& call) {
  out.node(call, "DepthToSpace", {out.input(call, 0)},
           {{"blocksize", call.get<std::int64_t>("factor")}, {"mode", std::string("CRD")}});
}

/// Reorders channels, because ONNX's SpaceToDepth has another order.
void pixel_unshuffle(Exporting& out, const Call& call) {
  auto& graph = out.graph();
  const std::string name = Exporting::node_name(call);
  const auto r = call.get<std::int64_t>("factor");
  const Shape x = call.inputs.at(0).shape();
  const std::string squares =
      graph.add("Reshape", name + ".squares",
                {out.input(call, 0), integers(out, name + ".sizes", {0, x[1], x[2] / r, r, x[3] / r, r})});
  const std::string turned =
      graph.add("Transpose", name + ".turned", {squares}, {{"perm", Numbers{0, 1, 3, 5, 2, 4}}});
  out.node(call, "Reshape", {turned, open_shape(out, call)});
}

/// Returns the factors of all axes if they are given or exact in float. Empty if sizes are more exact.
std::vector<float> factors(const Call& call) {
  const Shape from = call.inputs.at(0).shape(), to = call.output.shape();
  const auto& given = call.get<std::vector<double>>("scales");
  std::vector<float> out(to.size() - given.size(), 1.0F);
  for (const double scale : given) out.push_back(static_cast<float>(scale));
  for (std::size_t i = 0; given.empty() && i < to.size(); ++i) {
    const double ratio = static_cast<double>(to[i]) / static_cast<double>(from[i]);
    // A rounded scale could give another output size: ONNX computes floor(size * scale).
    if (static_cast<float>(ratio) != ratio) return {};
    out[i] = static_cast<float>(ratio);
  }
  return out;
}

/// Writes scales or sizes of all axes, because optimisers move layouts only through this form.
template <const char* mode>
void resize(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call);
  std::vector<std::string> inputs{out.input(call, 0), ""};
  if (const auto scales = factors(call); !scales.empty()) {
    inputs.push_back(out.graph().constant(name + ".scales",
                                          Tensor::from(scales, {static_cast<std::int64_t>(scales.size())})));
  } else {
    const Shape shape = call.output.shape();
    const std::string rest = integers(out, name + ".rest", {shape.begin() + 1, shape.end()});
    inputs.insert(inputs.end(), {"", out.graph().add("Concat", name + ".sizes", {out.batch(), rest},
                                                     {{"axis", std::int64_t{0}}})});
  }
  const auto& rounding = call.get<std::string>("rounding");
  out.node(call, "Resize", std::move(inputs),
           {{"mode", std::string(mode)},
            {"coordinate_transformation_mode", call.get<std::string>("coordinates")},
            {"nearest_mode", rounding.starts_with("prefer") ? "round_" + rounding : rounding},
            {"cubic_coeff_a", static_cast<float>(call.get<double>("cubic"))}});
}

constexpr char kNearest[] = "nearest", kLinear[] = "linear", kCubic[] = "cubic";

}  // namespace

Forms move_forms() {
  return {
      {"reshape", reshape},
      {"flatten", flatten},
      {"transpose", transpose},
      {"slice", slice},
      {"index_select", index_select},
      {"expand", expand},
      {"pad", pad},
      {"pad_constant", pad},
      {"pixel_shuffle", pixel_shuffle},
      {"pixel_unshuffle", pixel_unshuffle},
      {"resize_nearest", resize<kNearest>},
      {"resize_linear", resize<kLinear>},
      {"resize_cubic", resize<kCubic>},
  };
}

}  // namespace fq::detail
