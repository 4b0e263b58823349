#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/detail/element_type.h"
#include "fakequant/export/onnx/writer/forms.h"

namespace fq::detail {
namespace {

void emit_clip(Exporting& out, const Call& call, double low, double high) {
  const std::string name = Exporting::node_name(call);
  out.node(call, "Clip",
           {out.input(call, 0), number(out, name + ".low", low), number(out, name + ".high", high)});
}

/// Handles E4M3: ONNX Runtime removes a Relu before a quantizer of E4M3, and then does not clip.
void relu(Exporting& out, const Call& call) {
  if (out.give_relu(call)) return;
  if (out.options().target == Target::ort && out.ends_in_e4m3(call.output))
    return out.node(call, "Max", {out.input(call, 0), number(out, "zero", 0)});
  out.node(call, "Relu", {out.input(call, 0)});
}

void relu6(Exporting& out, const Call& call) { emit_clip(out, call, 0, 6); }
void clip(Exporting& out, const Call& call) {
  emit_clip(out, call, call.get<double>("low"), call.get<double>("high"));
}

// ONNX's default slope is 0.2, PyTorch's is 1/6.
void hard_sigmoid(Exporting& out, const Call& call) {
  out.node(call, "HardSigmoid", {out.input(call, 0)}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}});
}

void silu(Exporting& out, const Call& call) {
  const std::string x = out.input(call, 0);
  const std::string gate = out.graph().add("Sigmoid", Exporting::node_name(call) + ".sigmoid", {x});
  out.node(call, "Mul", {x, gate});
}

/// Above the threshold of beta * x, the logarithm differs from x by less than exp(-threshold).
void softplus(Exporting& out, const Call& call) {
  const double beta = call.get<double>("beta"), threshold = call.get<double>("threshold");
  const std::string name = Exporting::node_name(call), x = out.input(call, 0);
  FQ_CHECK(threshold >= 15, "export_onnx",
           "'{}' has a threshold of {}: the Softplus of ONNX has none, use 15 or more", call.path, threshold);
  if (beta == 1.0) return out.node(call, "Softplus", {x});
  const std::string by = number(out, name + ".beta", beta);
  const std::string inner = out.graph().add("Mul", name + ".inner", {x, by});
  out.node(call, "Div", {out.graph().add("Softplus", name + ".softplus", {inner}), by});
}

/// Computes -softplus(-x), which does not overflow.
void log_sigmoid(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call);
  const std::string minus = out.graph().add("Neg", name + ".minus", {out.input(call, 0)});
  out.node(call, "Neg", {out.graph().add("Softplus", name + ".softplus", {minus})});
}

/// Computes sign(x) * floor(|x|), exact for all numbers, because ONNX has no operator for it.
void trunc(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call), x = out.input(call, 0);
  const std::string size = out.graph().add("Abs", name + ".size", {x}),
                    sign = out.graph().add("Sign", name + ".sign", {x});
  out.node(call, "Mul", {sign, out.graph().add("Floor", name + ".floor", {size})});
}

void round_to(Exporting& out, const Call& call) {
  const DType type = dtype_from_name(call.get<std::string>("type"));
  const std::string narrow = out.graph().add("Cast", Exporting::node_name(call) + ".narrow",
                                             {out.input(call, 0)}, {{"to", std::int64_t{onnx_type(type)}}});
  out.node(call, "Cast", {narrow}, {{"to", std::int64_t{onnx_type(DType::f32)}}});
}

/// Gives slopes per channel trailing axes, so that they broadcast against the input.
void prelu(Exporting& out, const Call& call) {
  const Variable& slope = call.inputs.at(1);
  const int rank = call.output.rank();
  if (slope.rank() != 1 || slope.numel() == 1 || rank < 3 || slope.dim(0) != call.output.dim(1))
    return out.node(call, "PRelu", all_inputs(out, call));
  Shape shape(static_cast<std::size_t>(rank - 1), 1);
  shape[0] = slope.dim(0);
  const std::string name = out.parameter_name(slope, Exporting::node_name(call) + ".slope");
  out.node(call, "PRelu",
           {out.input(call, 0), out.graph().constant(name, slope.tensor().reshape(std::move(shape)))});
}

void glu(Exporting& out, const Call& call) {
  const auto axis = call.get<std::int64_t>("axis");
  const std::int64_t half = call.output.dim(static_cast<int>(axis));
  const std::string name = Exporting::node_name(call), x = out.input(call, 0);
  const auto part = [&](const std::string& which, std::int64_t begin) {
    return out.graph().add("Slice", name + which,
                           {x, integers(out, name + which + ".begin", {begin}),
                            integers(out, name + which + ".end", {begin + half}),
                            integers(out, name + which + ".axis", {axis})});
  };
  // As torch.nn.functional.glu: the second half is the gate of the first.
  const std::string gate = out.graph().add("Sigmoid", name + ".sigmoid", {part(".gate", half)});
  out.node(call, "Mul", {part(".values", 0), gate});
}

}  // namespace

Forms function_forms() {
  return {
      {"relu", relu},
      {"relu6", relu6},
      {"clip", clip},
      {"silu", silu},
      {"hard_sigmoid", hard_sigmoid},
      {"softplus", softplus},
      {"log_sigmoid", log_sigmoid},
      {"prelu", prelu},
      {"glu", glu},
      {"trunc", trunc},
      {"round_to", round_to},
  };
}

namespace {

constexpr std::int64_t kBool = 9;  // ONNX's number of the element type

void not_equal(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call);
  const std::string truth = out.graph().add("Equal", name + ".equal", all_inputs(out, call));
  give_numbers(out, call, out.graph().add("Not", name + ".truth", {truth}));
}

void where(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call) + ".truth";
  // Conditions are floats of 1 and 0 in the network.
  const std::string truth = out.graph().add("Cast", name, {out.input(call, 0)}, {{"to", kBool}});
  out.node(call, "Where", {truth, out.input(call, 1), out.input(call, 2)});
}

template <const char* op, const char* attribute>
void with_number(Exporting& out, const Call& call) {
  out.node(call, op,
           {out.input(call, 0),
            number(out, Exporting::node_name(call) + "." + attribute, call.get<double>(attribute))});
}

/// Writes a reduction whose axes are an input.
template <const char* op>
void reduce(Exporting& out, const Call& call) {
  out.graph().needs_opset(18);
  const std::string axes = integers(out, Exporting::node_name(call) + ".axes", call.get<Numbers>("axes"));
  out.node(call, op, {out.input(call, 0), axes}, {{"keepdims", std::int64_t{call.get<bool>("keep_axes")}}});
}

constexpr char kMul[] = "Mul", kAdd[] = "Add", kPow[] = "Pow", kFactor[] = "factor", kBy[] = "by",
               kExponent[] = "exponent", kReduceSum[] = "ReduceSum", kReduceMean[] = "ReduceMean",
               kReduceMax[] = "ReduceMax", kReduceMin[] = "ReduceMin";

}  // namespace

Forms arithmetic_forms() {
  return {
      {"not_equal", not_equal},
      {"where", where},
      {"scale", with_number<kMul, kFactor>},
      {"shift", with_number<kAdd, kBy>},
      {"power", with_number<kPow, kExponent>},
      {"sum", reduce<kReduceSum>},
      {"mean", reduce<kReduceMean>},
      {"max", reduce<kReduceMax>},
      {"min", reduce<kReduceMin>},
  };
}

}  // namespace fq::detail
