#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/ops/operators.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/onnx/writer/exporting.h"
#include "fakequant/export/onnx/writer/forms.h"

namespace fq::detail {
namespace {

using Numbers = std::vector<std::int64_t>;

/// Channel axis of a product's weight, number of channels, and number of products per output.
struct ProductShape {
  int weight_axis;
  std::int64_t channels, terms;

  static ProductShape of(const Call& call) {
    const Shape w = call.inputs.at(1).shape(), y = call.output.shape();
    if (call.op == "linear") return {0, w[0], w[1]};
    const bool transposed = traits(call.op).transposed;
    const std::int64_t groups = call.get<std::int64_t>("groups");
    const std::int64_t pixels = numel(w) / (w[0] * w[1]);
    return {traits(call.op).channel_axis(), y[1], (transposed ? w[0] / groups : w[1]) * pixels};
  }
};

const ProductSums* find_sums(const Variable& y) {
  const Accumulator* sums = y.accumulator();
  while (sums != nullptr && std::holds_alternative<AccumulatorMove>(sums->value))
    sums = &std::get<AccumulatorMove>(sums->value).inner.at(0);
  return sums == nullptr ? nullptr : std::get_if<ProductSums>(&sums->value);
}

/// Returns the bias as codes on the grid of the sums, computed with the layer's formula.
ProductSums real_sums(const Call& call, const ProductShape& shape, const QuantizedTensor& w) {
  // The trace has codes without values. Only the grid of the input matters for the bias.
  const QuantizedTensor x{
      Tensor::empty({1}, call.inputs[0].quantized()->codes.dtype()), call.inputs[0].quantized()->grid, {}};
  const std::int64_t largest = largest_sum(x, w, shape.terms, "export_onnx");
  Variable bias = call.inputs.at(2);
  if (!bias.defined()) bias = Variable(Tensor::zeros({shape.channels}));
  const Accumulator sums =
      product_sums(Tensor::empty({1, shape.channels}, DType::i32), x, w, bias, shape.weight_axis, 1, largest);
  return std::get<ProductSums>(sums.value);
}

Tensor dequantized_bias(const ProductSums& sums) {
  Tensor out = Tensor::empty(sums.bias.shape());
  const auto codes = sums.bias.to_vector<std::int32_t>();
  const auto scale = sums.scale.to_vector<float>();
  for (std::size_t c = 0; c < codes.size(); ++c)
    out.mutable_data<float>()[c] =
        scalar::mul_(static_cast<float>(codes[c]), scale[scale.size() == 1 ? 0 : c]);
  return out;
}

/// Adds the bias of integer sums: int32 codes and their scales, or floats on that grid. Empty without a bias.
std::string add_bias(Exporting& out, const Call& call, const QuantizedTensor* w) {
  const std::string name = Exporting::node_name(call) + ".bias";
  const ProductShape shape = ProductShape::of(call);
  const bool integers =
      find_sums(call.output) != nullptr && w != nullptr && codes_are_factors(*w, shape.weight_axis);
  if (!integers) return call.inputs.at(2).defined() ? out.input(call, 2) : "";
  const ProductSums sums = real_sums(call, shape, *w);
  if (out.options().target == Target::tensorrt) return out.graph().constant(name, dequantized_bias(sums));
  const bool one = sums.scale.numel() == 1;
  GraphBuilder& graph = out.graph();
  const std::string zero =
      graph.constant(name + ".zero_point", Tensor::zeros(sums.scale.shape(), DType::i32));
  return graph.add("DequantizeLinear", name,
                   {graph.constant(name, sums.bias), graph.constant(name + ".scale", sums.scale), zero},
                   one ? GraphBuilder::Attributes{} : GraphBuilder::Attributes{{"axis", std::int64_t{0}}});
}

Numbers doubled(const Numbers& padding) {
  Numbers pads = padding;
  pads.insert(pads.end(), padding.begin(), padding.end());
  return pads;
}

GraphBuilder::Attributes convolution_attributes(const Call& call) {
  const Shape w = call.inputs.at(1).shape();
  GraphBuilder::Attributes out{{"kernel_shape", Numbers(w.begin() + 2, w.end())},
                               {"strides", call.get<Numbers>("stride")},
                               {"pads", doubled(call.get<Numbers>("padding"))},
                               {"dilations", call.get<Numbers>("dilation")},
                               {"group", call.get<std::int64_t>("groups")}};
  if (traits(call.op).transposed) out.emplace_back("output_padding", call.get<Numbers>("output_padding"));
  return out;
}

GraphBuilder::Attributes gemm_attributes() {
  return {{"transB", std::int64_t{1}}, {"alpha", 1.0F}, {"beta", 1.0F}};
}

/// Writes Gemm if possible, because ONNX Runtime adds the bias of a MatMul in floats but of a Gemm in
/// integers.
void emit_rows(Exporting& out, const Call& call, const QuantizedTensor* w) {
  std::vector<std::string> inputs{out.rows(call, 0), out.input(call, 1), add_bias(out, call, w)};
  out.give_rows(call,
                out.graph().add("Gemm", Exporting::node_name(call), std::move(inputs), gemm_attributes()));
}

}  // namespace

/// Writes a product. Gemm requires matrices, and engines support blocked weights only as the right factor of
/// MatMul.
void emit_product(Exporting& out, const Call& call) {
  if (call.attribute("engine") != nullptr) return emit_dynamic_product(out, call);
  const QuantizedTensor* w = out.constant_codes(call.inputs.at(1));
  if (call.op == "linear" && call.inputs[0].rank() != 2 && out.options().target == Target::ort &&
      find_sums(call.output) != nullptr)
    return emit_rows(out, call, w);
  const bool blocks = w != nullptr && !codes_are_factors(*w, 0);
  const bool matrix = call.op == "linear" && (call.inputs[0].rank() != 2 || blocks);
  std::vector<std::string> inputs{out.input(call, 0),
                                  out.input(call, 1, matrix ? Form::transposed : Form::as_is)};
  const std::string bias = add_bias(out, call, w);
  if (matrix && !bias.empty()) {
    const std::string product = out.graph().add("MatMul", Exporting::node_name(call), std::move(inputs));
    return out.give(call, out.graph().add("Add", Exporting::node_name(call) + ".add_bias", {product, bias}));
  }
  if (!bias.empty()) inputs.push_back(bias);
  if (matrix) return out.node(call, "MatMul", std::move(inputs));
  if (call.op == "linear") return out.node(call, "Gemm", std::move(inputs), gemm_attributes());
  out.node(call, traits(call.op).transposed ? "ConvTranspose" : "Conv", std::move(inputs),
           convolution_attributes(call));
}

namespace {

constexpr std::int64_t kFloatType = 1;  // TensorProto.FLOAT

/// Returns the codes as the right factor, [K, N].
Tensor transposed_codes(const QuantizedTensor& w) {
  return ops::transpose(Variable(code_values(w)), {1, 0}).tensor().to(DType::i8);
}

}  // namespace

/// Writes y = fl(fl(fl(A) * fl(s * s_w)) + b), where A are the sums of MatMulInteger. Each operation is a
/// node. The engine fuses the nodes without changing a bit.
void emit_dynamic_product(Exporting& out, const Call& call) {
  const QuantizedTensor* w = out.constant_codes(call.inputs.at(1));
  const std::string name = Exporting::node_name(call);
  FQ_CHECK(w != nullptr, "export_onnx", "the weight of '{}' is computed: a constant one has codes", name);
  GraphBuilder& graph = out.graph();
  const std::string path = w->grid.name.empty() ? name + ".weight_quantizer" : w->grid.name;
  const std::string codes =
      graph.add("DynamicQuantizeLinear", name + ".input_quantizer", {out.input(call, 0)});
  const std::string scale = graph.free_tensor_name(name + ".input_quantizer.scale"),
                    zero = graph.free_tensor_name(name + ".input_quantizer.zero_point");
  graph.model.nodes.back().outputs = {codes, scale, zero};
  const std::string weight =
      graph.constant(out.parameter_name(call.inputs[1], path + ".codes"), transposed_codes(*w));
  const std::string sums = graph.add("MatMulInteger", name, {codes, weight, zero});
  const std::string floats = graph.add("Cast", name + ".sums", {sums}, {{"to", kFloatType}});
  const Shape scales = w->grid.scale.numel() == 1 ? Shape{} : Shape{w->grid.scale.numel()};
  const std::string own = graph.constant(path + ".scale", w->grid.scale.reshape(scales));
  const std::string both = graph.add("Mul", name + ".scale", {scale, own});
  const std::string y = graph.add("Mul", name + ".scaled", {floats, both});
  if (!call.inputs.at(2).defined()) return out.give(call, y);
  out.give(call, graph.add("Add", name + ".add_bias", {y, out.input(call, 2)}));
}

}  // namespace fq::detail
