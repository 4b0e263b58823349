#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/export/onnx/model.h"

namespace fq::tensorrt_rules_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Builds graphs whose nodes are named after their outputs.
class Builder {
 public:
  std::string constant(const std::string& name, Tensor value) {
    model.initializers.push_back({name, std::move(value)});
    return name;
  }
  std::string node(const std::string& op, std::vector<std::string> inputs, const std::string& output,
                   std::vector<std::pair<std::string, OnnxAttribute>> attributes = {}) {
    model.nodes.push_back({op, output, "", std::move(inputs), {output}, std::move(attributes)});
    return output;
  }
  std::string activation(const std::string& x, const std::string& name,
                         const Tensor& scale = Tensor::scalar(0.1),
                         const Tensor& zero = Tensor::scalar(0, DType::i8)) {
    const auto s = constant(name + ".scale", scale), z = constant(name + ".zero", zero);
    return node("DequantizeLinear", {node("QuantizeLinear", {x, s, z}, name), s, z}, name + ".dq");
  }
  std::string weight(const std::string& name, Tensor codes, Tensor scale, std::int64_t axis = 0,
                     std::int64_t block = 0) {
    const Tensor zero = Tensor::zeros(scale.shape(), codes.dtype());
    std::vector<std::pair<std::string, OnnxAttribute>> attributes{{"axis", axis}};
    if (block > 0) attributes.emplace_back("block_size", block);
    return node("DequantizeLinear",
                {constant(name + ".codes", std::move(codes)), constant(name + ".scale", std::move(scale)),
                 constant(name + ".zero", zero)},
                name, std::move(attributes));
  }
  void output(const std::string& name, DType dtype = DType::f32) {
    model.outputs.push_back({name, OnnxKind::tensor, dtype, true, {{-1, "N"}, {4, ""}}});
  }
  [[nodiscard]] std::vector<RuleBreak> breaks() const { return tensorrt_rule_breaks(model); }

  OnnxModel model;
};

Tensor codes(Shape shape, DType dtype = DType::i8) { return Tensor::zeros(std::move(shape), dtype); }
Tensor scales(std::int64_t count) { return Tensor::full({count}, 0.5); }

auto broken(const std::string& node, const std::string& rule) {
  return AllOf(testing::Field(&RuleBreak::node, node), testing::Field(&RuleBreak::rule, HasSubstr(rule)));
}

TEST(TensorrtRules, AcceptAQuantizedLayerWithAFloatBias) {
  Builder b;
  const auto x = b.activation("input", "fc.input_quantizer");
  const auto w = b.weight("fc.weight", codes({4, 8}), scales(4));
  b.output(
      b.node("Gemm", {x, w, b.constant("fc.bias", Tensor::zeros({4}))}, "fc", {{"transB", std::int64_t{1}}}));
  EXPECT_THAT(b.breaks(), IsEmpty());
}

TEST(TensorrtRules, CheckTheOpset) {
  Builder b;
  b.model.graph_name = "net";
  b.model.opset = 26;
  EXPECT_THAT(b.breaks(), ElementsAre(broken("net", "opset 26: TensorRT supports 9 to 25")));
  b.model.opset = 8;
  EXPECT_THAT(b.breaks(), ElementsAre(broken("net", "opset 8")));
}

TEST(TensorrtRules, CodesAreSigned) {
  Builder b;
  b.activation("input", "q", Tensor::scalar(0.1), Tensor::scalar(0, DType::u8));
  EXPECT_THAT(b.breaks(), ElementsAre(broken("q", "codes are UINT8"), broken("q.dq", "codes are UINT8")));
}

TEST(TensorrtRules, CodesWithoutAZeroPointAreUnsigned) {
  Builder b;
  b.node("QuantizeLinear", {"input", b.constant("scale", Tensor::scalar(0.1))}, "q");
  b.node("DequantizeLinear", {"q", "scale"}, "dq");
  EXPECT_THAT(b.breaks(), ElementsAre(broken("q", "codes are UINT8"), broken("dq", "codes are UINT8")));
}

TEST(TensorrtRules, AnAttributeMaySetTheTypeOfCodes) {
  Builder b;
  b.model.opset = 21;
  b.node("QuantizeLinear", {"input", b.constant("scale", Tensor::scalar(0.1))}, "q",
         {{"output_dtype", std::int64_t{3}}});  // INT8
  b.node("DequantizeLinear", {"q", "scale"}, "dq");
  EXPECT_THAT(b.breaks(), IsEmpty());
}

TEST(TensorrtRules, ZeroPointsAreZeroAndConstant) {
  Builder b;
  b.activation("input", "q", Tensor::scalar(0.1), Tensor::scalar(-128, DType::i8));
  EXPECT_THAT(b.breaks(),
              ElementsAre(broken("q", "zero point is not 0"), broken("q.dq", "zero point is not 0")));
  Builder computed;
  computed.node("QuantizeLinear", {"input", computed.constant("scale", Tensor::scalar(0.1)), "zero"}, "q");
  EXPECT_THAT(computed.breaks(), testing::Contains(broken("q", "zero point is not a constant")));
}

TEST(TensorrtRules, RejectAnIntegerBias) {
  Builder b;
  b.weight("fc.bias", codes({4}, DType::i32), scales(4));
  EXPECT_THAT(b.breaks(), ElementsAre(broken("fc.bias", "INT32 constant is dequantized")));
}

TEST(TensorrtRules, Int4IsForConstants) {
  Builder b;
  b.activation("input", "q", Tensor::scalar(0.1), Tensor::zeros({}, DType::i4));
  EXPECT_THAT(b.breaks(),
              ElementsAre(broken("q", "INT4 for constants"), broken("q.dq", "INT4 for constants")));
}

TEST(TensorrtRules, ScalesAreConstantPositiveAndFinite) {
  Builder b;
  const auto zero = b.constant("zero", Tensor::scalar(0, DType::i8));
  b.node("QuantizeLinear", {"input", "computed", zero}, "q");
  EXPECT_THAT(b.breaks(), ElementsAre(broken("q", "scale is not a constant")));
  for (const double value : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    Builder other;
    other.activation("input", "q", Tensor::scalar(value));
    EXPECT_THAT(other.breaks(), ElementsAre(broken("q", "not positive"), broken("q.dq", "not positive")))
        << value;
  }
}

TEST(TensorrtRules, ActivationsHaveOneScale) {
  Builder b;
  b.activation("input", "q", scales(3), codes({3}));
  EXPECT_THAT(b.breaks(), ElementsAre(broken("q", "supports one"), broken("q.dq", "supports one")));
}

TEST(TensorrtRules, WeightsHaveScalesAlongOutputChannels) {
  Builder b;
  b.node("Conv", {"input", b.weight("conv.weight", codes({4, 4, 3, 3}), scales(4), 1)}, "conv");
  b.node("MatMul", {"conv", b.weight("matmul.weight", codes({4, 4}), scales(4), 0)}, "matmul");
  b.node("ConvTranspose", {"conv", b.weight("up.weight", codes({4, 4, 3, 3}), scales(4), 1)}, "up");
  b.node("Gemm", {"matmul", b.weight("fc.weight", codes({4, 4}), scales(4), -1)}, "fc");
  EXPECT_THAT(b.breaks(), ElementsAre(broken("conv.weight", "output channels of Conv, axis 0"),
                                      broken("matmul.weight", "output channels of MatMul, axis 1")));
  Builder wrong;
  wrong.weight("w", codes({4, 8}), scales(5));
  wrong.weight("v", codes({4, 8}), scales(4), 7);
  EXPECT_THAT(wrong.breaks(), ElementsAre(broken("w", "5 scales along axis 0"), broken("v", "along axis 7")));
}

TEST(TensorrtRules, RejectInvalidBlocks) {
  Builder b;
  b.weight("int4", codes({64, 8}, DType::i4), Tensor::full({2, 8}, 0.5), 0, 32);
  EXPECT_THAT(b.breaks(), IsEmpty());
  b.weight("int8", codes({64, 8}), Tensor::full({2, 8}, 0.5), 0, 32);
  b.weight("sizes", codes({64, 8}, DType::i4), Tensor::full({3, 8}, 0.5), 0, 32);
  b.weight("unblocked", codes({64, 8}, DType::i4), Tensor::full({2, 8}, 0.5), 0);
  b.weight("axis", codes({64, 8, 4}, DType::i4), Tensor::full({2, 8, 4}, 0.5), 0, 32);
  EXPECT_THAT(b.breaks(),
              ElementsAre(broken("int8", "INT8 in blocks"), broken("sizes", "supports blocks"),
                          broken("unblocked", "supports blocks"), broken("axis", "supports blocks")));
}

TEST(TensorrtRules, AcceptDequantizedBlockScales) {
  Builder b;
  const auto level = b.weight("w.scales", Tensor::full({4, 2}, 1, DType::u8), Tensor::scalar(0.1));
  b.model.initializers[0].value = codes({4, 2}, DType::f8_e4m3);
  b.model.initializers[2].value = Tensor::zeros({}, DType::f8_e4m3);
  b.node("DequantizeLinear", {b.constant("w.codes", codes({4, 32}, DType::f4_e2m1)), level}, "w",
         {{"axis", std::int64_t{1}}, {"block_size", std::int64_t{16}}});
  EXPECT_THAT(b.breaks(), IsEmpty());
}

TEST(TensorrtRules, CheckBothInputsOfAQuantizedSum) {
  Builder b;
  b.node("Add", {b.activation("input", "q"), "input"}, "half");
  b.activation(b.node("Relu", {"half"}, "relu"), "next");
  b.node("Add", {"input", "input"}, "float sum");
  b.activation(b.node("Add", {"q.dq", b.activation("input", "r")}, "sum"), "last");
  EXPECT_THAT(b.breaks(), ElementsAre(broken("half", "input 2 of a sum")));
}

TEST(TensorrtRules, OutputsAreFloats) {
  Builder b;
  b.activation("input", "q");
  b.output("q", DType::i8);
  EXPECT_THAT(b.breaks(), ElementsAre(broken("q", "graph output is codes")));
}

TEST(TensorrtRules, TensorsHaveFewerThan2To31Elements) {
  Builder b;
  b.model.values.push_back(
      {"big", OnnxKind::tensor, DType::f32, true, {{-1, "N"}, {1 << 16, ""}, {1 << 15, ""}}});
  b.model.values.push_back({"fits", OnnxKind::tensor, DType::f32, true, {{(std::int64_t{1} << 31) - 1, ""}}});
  EXPECT_THAT(b.breaks(), ElementsAre(broken("big", "2147483648 elements")));
}

TEST(TensorrtRules, IdentifyUnnamedNodesByOutput) {
  Builder b;
  b.activation("input", "q", Tensor::scalar(-1));
  for (auto& node : b.model.nodes) node.name.clear();
  EXPECT_THAT(b.breaks(), ElementsAre(broken("q", "not positive"), broken("q.dq", "not positive")));
}

TEST(TensorrtRules, TakeLinearTimeForManyReaders) {
  Builder b;
  std::string value = "start";
  for (const char* name : {"a", "b", "c", "d"})
    value = b.node("Max", std::vector<std::string>(1000, value), name);
  b.node("Add", {"x", "y"}, "start");
  EXPECT_THAT(b.breaks(), IsEmpty());
}

}  // namespace
}  // namespace fq::tensorrt_rules_test
