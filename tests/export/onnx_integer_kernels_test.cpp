#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/export/onnx/exporter.h"
#include "fakequant/layers/model/model_file.h"
#include "layers/networks.h"

/// Forms that ONNX Runtime has integer kernels for: tests/onnx runs them.
namespace fq::onnx_integer_kernels_test {
namespace {

using testing::ElementsAre;
using Ops = std::vector<std::string>;

/// The graph of nodes, quantized to int8 for `ort`, without the grids of weights and biases.
OnnxModel exported(const std::string& nodes, const Shape& sample) {
  auto model = build_model(ModelSpec::parse(nodes), sample, 4);
  Shape batch{2};
  batch.insert(batch.end(), sample.begin(), sample.end());
  quantize(*model, QuantConfig::preset("int8"), batch);
  test::observe(*model, test::random_tensor(batch, -1, 1));
  return export_onnx(*model, sample);
}

const OnnxNode* maker(const OnnxModel& model, const std::string& tensor) {
  const auto found =
      std::ranges::find_if(model.nodes, [&](const OnnxNode& n) { return n.outputs[0] == tensor; });
  return found == model.nodes.end() ? nullptr : &*found;
}

/// Operators that lead to a tensor by first inputs, the last first.
Ops preceding_operators(const OnnxModel& model, const std::string& tensor) {
  Ops out;
  for (const OnnxNode* node = maker(model, tensor); node != nullptr; node = maker(model, node->inputs[0]))
    out.push_back(node->op);
  return out;
}

int count(const OnnxModel& model, const std::string& op) {
  return static_cast<int>(std::ranges::count(model.nodes, op, &OnnxNode::op));
}

TEST(OnnxIntegerKernels, RowsUseAGemmRoundedBeforeUnrolling) {
  const OnnxModel model = exported(R"([{"name": "a", "type": "linear", "options": {"out_features": 8}},
    {"name": "act", "type": "relu"}, {"name": "b", "type": "linear", "options": {"out_features": 8}},
    {"name": "flat", "type": "flatten"}, {"name": "fc", "type": "linear", "options": {"out_features": 4}}])",
                                   {6, 5});
  EXPECT_EQ(count(model, "MatMul"), 0);
  EXPECT_EQ(count(model, "Gemm"), 3);
  EXPECT_THAT(preceding_operators(model, "b.input_quantizer.rows"),
              ElementsAre("QuantizeLinear", "Relu", "Gemm", "DequantizeLinear", "QuantizeLinear", "Reshape",
                          "DequantizeLinear", "QuantizeLinear"));
  EXPECT_THAT(preceding_operators(model, "b.input_quantizer").at(1), "Reshape");
}

TEST(OnnxIntegerKernels, ReluOnSignedCodesIsMaxWithZero) {
  const OnnxModel model =
      exported(R"([{"name": "a", "type": "conv2d", "options": {"out_channels": 4, "kernel": 1}},
    {"name": "act", "type": "relu"}, {"name": "both", "type": "concat", "inputs": ["act", "input"]},
    {"name": "b", "type": "conv2d", "options": {"out_channels": 4, "kernel": 1}}, {"name": "flat", "type": "flatten"},
    {"name": "fc", "type": "linear", "options": {"out_features": 4}}])",
               {4, 3, 3});
  EXPECT_EQ(count(model, "Relu"), 0);
  const OnnxNode& cut = *std::ranges::find(model.nodes, "Clip", &OnnxNode::op);
  EXPECT_EQ(model.initializer(cut.inputs[1])->value.item(), 128);
  EXPECT_THAT(preceding_operators(model, cut.outputs[0]),
              ElementsAre("Clip", "QuantizeLinear", "Conv", "DequantizeLinear", "QuantizeLinear"));
}

TEST(OnnxIntegerKernels, FloatOutputConvolutionIsScaledAfterItsSums) {
  const OnnxModel model =
      exported(R"([{"name": "a", "type": "conv2d", "options": {"out_channels": 4, "kernel": 1}},
    {"name": "act", "type": "gelu"}, {"name": "b", "type": "conv2d", "options": {"out_channels": 4, "kernel": 3}},
    {"name": "last", "type": "gelu"}, {"name": "flat", "type": "flatten"},
    {"name": "fc", "type": "linear", "options": {"out_features": 4}}])",
               {4, 3, 3});
  EXPECT_EQ(count(model, "Conv"), 0);
  EXPECT_EQ(count(model, "ConvInteger"), 2);
  EXPECT_THAT(preceding_operators(model, "b.input_quantizer"),
              ElementsAre("QuantizeLinear", "Gelu", "Mul", "Cast", "Add", "ConvInteger", "QuantizeLinear"));
  EXPECT_EQ(model.initializer("b.weight_quantizer.scale.of_channels")->value.shape(), (Shape{4, 1, 1}));
  for (const auto& constant : model.initializers)  // the constants of a Conv are removed
    EXPECT_TRUE(std::ranges::any_of(model.nodes, [&](const OnnxNode& node) {
      return std::ranges::find(node.inputs, constant.name) != node.inputs.end();
    })) << constant.name;
}

TEST(OnnxIntegerKernels, ReluAfterPoolingIsRoundedWithTheConvolution) {
  const OnnxModel model =
      exported(R"([{"name": "a", "type": "conv2d", "options": {"out_channels": 4, "kernel": 1}},
    {"name": "pool", "type": "max_pool", "options": {"kernel": 2}}, {"name": "act", "type": "relu"},
    {"name": "b", "type": "conv2d", "options": {"out_channels": 4, "kernel": 1}}, {"name": "flat", "type": "flatten"},
    {"name": "fc", "type": "linear", "options": {"out_features": 4}}])",
               {4, 4, 4});
  const OnnxNode& pool = *std::ranges::find(model.nodes, "MaxPool", &OnnxNode::op);
  EXPECT_THAT(preceding_operators(model, pool.outputs[0]),
              ElementsAre("MaxPool", "DequantizeLinear", "QuantizeLinear", "Conv", "DequantizeLinear",
                          "QuantizeLinear"));
}

TEST(OnnxIntegerKernels, SumsWithTwoQuantizersAreWrittenTwice) {
  const OnnxModel model =
      exported(R"([{"name": "a", "type": "conv2d", "options": {"out_channels": 4, "kernel": 1}},
    {"name": "act", "type": "relu"}, {"name": "sum", "type": "add", "inputs": ["a", "act"]}, {"name": "late", "type": "relu"},
    {"name": "b", "type": "conv2d", "options": {"out_channels": 4, "kernel": 1}},
    {"name": "last", "type": "add", "inputs": ["sum", "b"]}, {"name": "flat", "type": "flatten"},
    {"name": "fc", "type": "linear", "options": {"out_features": 4}}])",
               {4, 3, 3});
  EXPECT_EQ(count(model, "Conv"), 3);
  EXPECT_EQ(count(model, "Add"), 3);
  for (const auto& node : model.nodes) {
    if (node.op != "Conv" && node.op != "Add") continue;
    EXPECT_EQ(std::ranges::count_if(model.nodes,
                                    [&](const OnnxNode& reader) {
                                      return std::ranges::find(reader.inputs, node.outputs[0]) !=
                                             reader.inputs.end();
                                    }),
              1)
        << node.name;
  }
}

}  // namespace
}  // namespace fq::onnx_integer_kernels_test
