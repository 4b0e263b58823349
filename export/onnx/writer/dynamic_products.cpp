#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/onnx/writer/forms.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kFloatType = 1;  // TensorProto.FLOAT

/// Codes as the right factor, [K, N].
Tensor turned_codes(const QuantizedTensor& w) {
  return ops::transpose(Variable(code_values(w)), {1, 0}).tensor().to(DType::i8);
}

}  // namespace

/// y = fl(fl(fl(A) * fl(s * s_w)) + b), A the sums of MatMulInteger: each operation a node, which the engine
/// fuses without changing a bit.
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
  const std::string weight = graph.constant(out.name_of(call.inputs[1], path + ".codes"), turned_codes(*w));
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
