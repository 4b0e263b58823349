#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/reference/modelopt.h"
#include "fakequant/reference/pytorch_quantization.h"
#include "layers/networks.h"

namespace fq::onnx_export_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Shape kSample{1, 8, 8};

std::shared_ptr<Graph> calibrated(const char* config) {
  auto model = test::residual_net();
  const Tensor x = test::random_tensor({4, 1, 8, 8}, 0, 1);
  fold_batch_norm(*model, x.shape());
  quantize(*model, QuantConfig::parse(config), x.shape());
  test::observe(*model, x);
  return model;
}

const OnnxNode* node(const OnnxModel& model, const std::string& name) {
  const auto found = std::ranges::find(model.nodes, name, &OnnxNode::name);
  return found == model.nodes.end() ? nullptr : &*found;
}

const OnnxNode* maker(const OnnxModel& model, const std::string& tensor) {
  const auto found =
      std::ranges::find_if(model.nodes, [&](const OnnxNode& n) { return n.outputs[0] == tensor; });
  return found == model.nodes.end() ? nullptr : &*found;
}

std::string error_text(Module& model, const Shape& sample, const OnnxExportOptions& options = {}) {
  try {
    (void)export_onnx(model, sample, options);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "nothing was refused";
}

/// Runs a function as a model.
class Calls : public Module {
 public:
  explicit Calls(std::function<Variable(const Variable&)> f) : f_(std::move(f)) {}
  [[nodiscard]] std::string type() const override { return "calls"; }

 protected:
  Variable forward(const Variable& x) override { return f_(x); }
  using Module::forward;

 private:
  std::function<Variable(const Variable&)> f_;
};

TEST(OnnxExport, CodesHaveTheNamesAndTypesOfTheirQuantizers) {
  auto net = calibrated(R"({"preset": "int8"})");
  const OnnxModel model = export_onnx(*net, kSample);
  EXPECT_EQ(model.opset, 13);
  EXPECT_EQ(model.ir_version, 7);
  for (const auto& [name, q, aliases] : named_quantizers(*net)) {
    if (!q->enabled() || name.ends_with("weight_quantizer")) continue;
    const OnnxNode* quantize = maker(model, name);
    ASSERT_NE(quantize, nullptr) << name;
    EXPECT_EQ(quantize->op, "QuantizeLinear");
    const Tensor zero = model.initializer(quantize->inputs[2])->value;
    EXPECT_EQ(zero.dtype(), DType::u8);
    EXPECT_EQ(zero.rank(), 0);
    EXPECT_EQ(zero.item(), q->descriptor().is_unsigned() ? 0 : 128) << name;
    EXPECT_TRUE(bitwise_equal(model.initializer(quantize->inputs[1])->value, q->grid().scale)) << name;
  }
}

TEST(OnnxExport, WritesTheCodesThatTheLayerMultiplies) {
  auto net = calibrated(R"({"preset": "int8"})");
  const OnnxModel model = export_onnx(*net, kSample);
  auto& fc = dynamic_cast<QuantLinear&>(net->at("fc"));
  const OnnxNode& gemm = *node(model, "fc");
  EXPECT_EQ(gemm.op, "Gemm");
  const OnnxNode& weight = *maker(model, gemm.inputs[1]);
  EXPECT_EQ(weight.name, "fc.weight_quantizer");
  EXPECT_TRUE(bitwise_equal(model.initializer(weight.inputs[0])->value,
                            fc.weight_quantizer()->weight(fc.weight()).quantized()->codes));
  const OnnxNode& bias = *maker(model, gemm.inputs[2]);
  const Tensor codes = model.initializer(bias.inputs[0])->value,
               scale = model.initializer(bias.inputs[1])->value;
  const float s_x = fc.input_quantizers()[0]->scale().data<float>()[0];
  for (std::int64_t c = 0; c < 10; ++c) {
    EXPECT_EQ(scale.data<float>()[c], s_x * fc.weight_quantizer()->scale().data<float>()[c]);
    EXPECT_EQ(codes.data<std::int32_t>()[c],
              std::nearbyint(fc.bias().tensor().data<float>()[c] / scale.data<float>()[c]));
  }
}

TEST(OnnxExport, TensorRtBiasesAreFloatsOnTheirGrid) {
  auto net = calibrated(R"({"preset": "int8", "target": "tensorrt"})");
  const OnnxModel theirs = export_onnx(*net, kSample, {.target = Target::tensorrt});
  const OnnxModel ours = export_onnx(*net, kSample);
  const Tensor floats = theirs.initializer(node(theirs, "fc")->inputs[2])->value;
  const OnnxNode& bias = *maker(ours, node(ours, "fc")->inputs[2]);
  const Tensor codes = ours.initializer(bias.inputs[0])->value,
               scale = ours.initializer(bias.inputs[1])->value;
  for (std::int64_t c = 0; c < 10; ++c)
    EXPECT_EQ(floats.data<float>()[c],
              static_cast<float>(codes.data<std::int32_t>()[c]) * scale.data<float>()[c]);
  for (const auto& n : theirs.nodes) {
    if (n.op != "QuantizeLinear") continue;
    EXPECT_EQ(theirs.initializer(n.inputs[2])->value.dtype(), DType::i8) << n.name;
  }
}

/// Engines pool codes; here pooling acts on sums.
TEST(OnnxExport, MovingOperatorsKeepTheGrid) {
  auto net = calibrated(R"({"preset": "int8"})");
  const OnnxModel model = export_onnx(*net, kSample);
  for (const char* name : {"pool", "flat"}) {
    const OnnxNode& moved = *node(model, name);
    const OnnxNode& before = *maker(model, moved.inputs[0]);
    EXPECT_EQ(before.op, "DequantizeLinear");
    const auto after =
        std::ranges::find_if(model.nodes, [&](const OnnxNode& n) { return n.inputs[0] == moved.outputs[0]; });
    ASSERT_NE(after, model.nodes.end());
    EXPECT_EQ(after->op, "QuantizeLinear");
    EXPECT_EQ(after->inputs[1], before.inputs[1]);
    EXPECT_EQ(after->inputs[2], before.inputs[2]);
  }
}

TEST(OnnxExport, InputsAndOutputsHaveADynamicBatch) {
  auto net = calibrated(R"({"preset": "int8"})");
  const OnnxModel model = export_onnx(*net, kSample);
  ASSERT_EQ(model.inputs.size(), 1u);
  EXPECT_EQ(model.inputs[0].name, "input");
  EXPECT_EQ(model.inputs[0].shape[0].symbol, "N");
  EXPECT_EQ(model.inputs[0].shape[1].size, 1);
  EXPECT_EQ(model.outputs[0].name, "output");
  EXPECT_EQ(model.outputs[0].shape[0].symbol, "N");
  EXPECT_EQ(model.outputs[0].shape[1].size, 10);
}

TEST(OnnxExport, WritesAFloatGraphWithoutQuantizers) {
  auto net = test::residual_net();
  const OnnxModel model = export_onnx(*net, kSample);
  std::vector<std::string> ops;
  for (const auto& n : model.nodes) ops.push_back(n.op);
  EXPECT_THAT(ops, ElementsAre("Conv", "BatchNormalization", "Relu", "MaxPool", "Conv", "BatchNormalization",
                               "Add", "Relu", "GlobalAveragePool", "Flatten", "Gemm"));
  EXPECT_EQ(node(model, "bn1")->inputs[3], "bn1.running_mean");
}

TEST(OnnxExport, RejectsUncalibratedQuantizersByName) {
  auto net = test::residual_net();
  quantize(*net, QuantConfig::preset("int8"), {1, 1, 8, 8});
  EXPECT_THAT(error_text(*net, kSample),
              HasSubstr("calibrate conv1.input_quantizer, conv1.weight_quantizer, "));
}

TEST(OnnxExport, RejectsAModelOfAnotherTarget) {
  auto net = calibrated(R"({"preset": "int8"})");
  EXPECT_THAT(error_text(*net, kSample, {.target = Target::tensorrt}),
              HasSubstr("was quantized for the target ort"));
}

TEST(OnnxExport, RejectsFormatsUnsupportedByTheTarget) {
  auto wide =
      calibrated(R"({"rules": [{"pattern": "*input_quantizer*", "num_bits": 16}], "target": "tensorrt"})");
  EXPECT_THAT(error_text(*wide, kSample, {.target = Target::tensorrt}),
              HasSubstr("the target tensorrt takes signed ones of up to 8 bits and E4M3"));
  auto dynamic = calibrated(R"({"preset": "mxfp8"})");
  EXPECT_THAT(error_text(*dynamic, kSample),
              HasSubstr("'conv1.input_quantizer' takes its range from each input"));
}

struct Bits {
  int bits, opset;
  DType stored;
  bool cut_codes;
  friend void PrintTo(const Bits& given, std::ostream* out) { *out << given.bits; }
};

class OnnxExportBits : public testing::TestWithParam<Bits> {};

/// Codes of types that ONNX does not have are clamped to their bounds in the next wider type.
TEST_P(OnnxExportBits, StayWithinTheirBounds) {
  const auto& [bits, opset, stored, cut_codes] = GetParam();
  auto net = calibrated(fmt::format(R"({{"rules": [{{"pattern": "*input_quantizer*", "num_bits": {0}}},
                                 {{"pattern": "*weight_quantizer", "num_bits": {0}, "axis": 0}}]}})",
                                    bits)
                            .c_str());
  const OnnxModel model = export_onnx(*net, kSample);
  EXPECT_EQ(model.opset, opset);
  for (const auto& [name, q, aliases] : named_quantizers(*net)) {
    if (!q->enabled() || name.ends_with("weight_quantizer")) continue;
    const OnnxNode* last = maker(model, name);
    ASSERT_NE(last, nullptr) << name;
    const OnnxNode* cut = cut_codes ? last : maker(model, last->inputs[0]);
    const OnnxNode* quantize = cut_codes ? maker(model, last->inputs[0]) : last;
    ASSERT_EQ(cut->op, "Clip") << name;
    ASSERT_EQ(quantize->op, "QuantizeLinear") << name;
    const Tensor zero = model.initializer(quantize->inputs[2])->value;
    const IntFormat format = q->grid().format.integer();
    EXPECT_EQ(zero.dtype(), format.is_unsigned && stored == DType::i16 ? DType::u16 : stored) << name;
    const double scale = cut_codes ? 1 : q->grid().scale.item(), offset = cut_codes ? zero.item() : 0;
    const auto bound = [&](std::size_t i) { return model.initializer(cut->inputs[i])->value.item(); };
    EXPECT_EQ(bound(1), static_cast<float>(format.lower() * scale + offset));
    EXPECT_EQ(bound(2), static_cast<float>(format.upper() * scale + offset));
  }
  const OnnxNode& weight = *node(model, "conv1.weight_quantizer");
  EXPECT_EQ(model.initializer(weight.inputs[0])->value.dtype(), bits <= 8 ? DType::i8 : DType::i16);
}

INSTANTIATE_TEST_SUITE_P(All, OnnxExportBits,
                         testing::Values(Bits{2, 13, DType::u8, true}, Bits{3, 13, DType::u8, true},
                                         Bits{5, 13, DType::u8, true}, Bits{6, 13, DType::u8, true},
                                         Bits{7, 13, DType::u8, true}, Bits{9, 21, DType::i16, false},
                                         Bits{12, 21, DType::i16, false}, Bits{15, 21, DType::i16, false}));

/// TensorRT wants DQ behind Q.
TEST(OnnxExport, TensorRtClampsBeforeRounding) {
  auto net =
      calibrated(R"({"rules": [{"pattern": "*input_quantizer*", "num_bits": 3}], "target": "tensorrt"})");
  const OnnxModel model = export_onnx(*net, kSample, {.target = Target::tensorrt});
  for (const auto& n : model.nodes)
    if (n.op == "QuantizeLinear") {
      EXPECT_EQ(maker(model, n.inputs[0])->op, "Clip") << n.name;
      EXPECT_EQ(model.initializer(n.inputs[2])->value.dtype(), DType::i8);
    }
}

TEST(OnnxExport, TokenIdsAreIntegers) {
  Graph net({{"words", std::make_shared<Embedding>(9, 4), {"input"}},
             {"fc", std::make_shared<Linear>(4, 3), {"words"}}});
  const OnnxModel model = export_onnx(net, {5});
  EXPECT_EQ(model.inputs[0].dtype, DType::i64);
  EXPECT_EQ(model.nodes[0].op, "Gather");
  EXPECT_EQ(model.nodes[0].inputs[1], "input");
  Graph both({{"words", std::make_shared<Embedding>(9, 1), {"input"}},
              {"flat", make_flatten(), {"words"}},
              {"sum", std::make_shared<Add>(), {"flat", "input"}}});
  const OnnxModel floats = export_onnx(both, {5});
  EXPECT_EQ(floats.inputs[0].dtype, DType::f32);
  EXPECT_EQ(floats.nodes[0].op, "Cast");
}

TEST(OnnxExport, RejectsAnOpsetWithoutTheTypes) {
  auto fp8 = calibrated(R"({"preset": "fp8"})");
  EXPECT_THAT(error_text(*fp8, kSample, {.opset = 13}), HasSubstr("needs opset 19 to 24: 13 was given"));
  EXPECT_EQ(export_onnx(*fp8, kSample, {.opset = 21}).opset, 21);
}

/// ONNX Runtime removes a Relu that is followed by a quantizer of E4M3.
TEST(OnnxExport, WritesReluBeforeE4M3AsMaxForOnnxRuntime) {
  auto net = calibrated(R"({"preset": "fp8", "target": "tensorrt"})");
  EXPECT_EQ(node(export_onnx(*net, kSample), "relu1")->op, "Max");
  EXPECT_EQ(node(export_onnx(*net, kSample, {.target = Target::tensorrt}), "relu1")->op, "Relu");
}

struct WeightCase {
  const char* fields;
  DType codes, scales;
  int opset;
  friend void PrintTo(const WeightCase& given, std::ostream* out) { *out << given.fields; }
};

class OnnxExportWeights : public testing::TestWithParam<WeightCase> {};

TEST_P(OnnxExportWeights, UseTheSmallestTypeAndTheirOwnScales) {
  const auto& [fields, codes, scales, opset] = GetParam();
  Graph net({{"fc", std::make_shared<Linear>(32, 6), {"input"}}});
  quantize(
      net,
      QuantConfig::parse(fmt::format(R"({{"rules": [{{"pattern": "*weight_quantizer", {}}}]}})", fields)),
      {1, 32});
  test::observe(net, test::random_tensor({2, 32}, -1, 1));
  for (auto& q : named_quantizers(net))
    if (q.quantizer->enabled() && q.quantizer->descriptor().needs_amax() && !q.quantizer->amax().defined()) {
      q.quantizer->observer().collect(net.at("fc").parameters()[0].tensor());
      q.quantizer->load_calibrated_amax();
    }
  const OnnxModel model = export_onnx(net, {32});
  EXPECT_EQ(model.opset, opset);
  const OnnxNode& weight = *node(model, "fc.weight_quantizer");
  EXPECT_EQ(model.initializer(weight.inputs[0])->value.dtype(), codes);
  const OnnxNode* of_scales = maker(model, weight.inputs[1]);
  EXPECT_EQ(model.initializer(of_scales == nullptr ? weight.inputs[1] : of_scales->inputs[0])->value.dtype(),
            scales);
  const OnnxModel emulated = export_onnx(net, {32}, {.emulate = true});
  EXPECT_LE(emulated.opset, 21);
}

INSTANTIATE_TEST_SUITE_P(
    All, OnnxExportWeights,
    testing::Values(
        WeightCase{R"("num_bits": 8, "axis": 0)", DType::i8, DType::f32, 13},
        WeightCase{R"("num_bits": 4, "axis": 0)", DType::i4, DType::f32, 21},
        WeightCase{R"("num_bits": 3, "axis": 0)", DType::i4, DType::f32, 21},
        WeightCase{R"("num_bits": 12)", DType::i16, DType::f32, 21},
        WeightCase{R"("num_bits": 4, "block_sizes": {"-1": 16})", DType::i4, DType::f32, 21},
        WeightCase{R"("num_bits": [4, 3])", DType::f8_e4m3, DType::f32, 19},
        WeightCase{
            R"("num_bits": [5, 2], "block_sizes": {"-1": 16, "type": "dynamic", "scale_bits": [8, 0]})",
            DType::f8_e5m2, DType::f8_e8m0, 24},
        WeightCase{R"("num_bits": [4, 3], "block_sizes": {"-1": 16, "-2": 2})", DType::f8_e4m3, DType::f32,
                   21},
        WeightCase{R"("num_bits": [2, 1], "block_sizes": {"-1": 16, "scale_bits": [4, 3]})", DType::f4_e2m1,
                   DType::f8_e4m3, 23},
        WeightCase{R"("num_bits": [4, 3], "block_sizes": {"-1": 32, "scale_bits": [8, 0]})", DType::f8_e4m3,
                   DType::f8_e8m0, 24},
        WeightCase{
            R"("num_bits": [3, 2], "block_sizes": {"-1": 32, "type": "dynamic", "scale_bits": [8, 0]})",
            DType::f8_e4m3, DType::f8_e8m0, 24}));

/// Engines know weights in blocks as the right factor of MatMul: [in, out], blocks along the first axis.
TEST(OnnxExport, WritesLinearBlocksTransposed) {
  Graph net({{"fc", std::make_shared<Linear>(32, 6), {"input"}}});
  quantize(net, QuantConfig::parse(R"({"rules": [{"pattern": "*weight_quantizer", "num_bits": 4,
      "block_sizes": {"-1": 16}}]})"),
           {1, 32});
  test::observe(net, test::random_tensor({2, 32}, -1, 1));
  const OnnxModel model = export_onnx(net, {32});
  EXPECT_EQ(node(model, "fc")->op, "MatMul");
  const OnnxNode& weight = *node(model, "fc.weight_quantizer");
  EXPECT_EQ(model.initializer(weight.inputs[0])->value.shape(), (Shape{32, 6}));
  EXPECT_EQ(model.initializer(weight.inputs[1])->value.shape(), (Shape{2, 6}));
  EXPECT_EQ(std::get<std::int64_t>(*weight.attribute("axis")), 0);
  EXPECT_EQ(std::get<std::int64_t>(*weight.attribute("block_size")), 16);
}

/// Two layers with unnamed quantizers.
class OwnQuantizers : public Module {
 public:
  OwnQuantizers()
      : w1_(add_parameter("w1", test::random_tensor({6, 4}, -1, 1))),
        w2_(add_parameter("w2", test::random_tensor({3, 6}, -1, 1))),
        in1_(add_module("in1", make_activation_quantizer())),
        in2_(add_module("in2", make_activation_quantizer())),
        of_w1_(add_module("of_w1", make_weight_quantizer(w1_))),
        of_w2_(add_module("of_w2", make_weight_quantizer(w2_))) {}
  [[nodiscard]] std::string type() const override { return "own_quantizers"; }

 protected:
  Variable forward(const Variable& x) override {
    return ops::linear(in2_(ops::linear(in1_(x), of_w1_->weight(w1_))), of_w2_->weight(w2_));
  }
  using Module::forward;

 private:
  static std::shared_ptr<TensorQuantizer> make_activation_quantizer() {
    return std::make_shared<TensorQuantizer>(QuantDescriptor({.amax = Amax(1.0)}));
  }
  static std::shared_ptr<TensorQuantizer> make_weight_quantizer(const Variable& weight) {
    auto q = std::make_shared<TensorQuantizer>(QuantDescriptor({.axis = {0}, .narrow_range = true}));
    q->observer().collect(weight.tensor());
    q->load_calibrated_amax();
    return q;
  }

  Variable w1_, w2_;
  Child<TensorQuantizer> in1_, in2_, of_w1_, of_w2_;
};

TEST(OnnxExport, NamesUnnamedQuantizersByPath) {
  OwnQuantizers model;
  const OnnxModel graph = export_onnx(model, {4});
  for (const char* name : {"in1", "in2"}) EXPECT_NE(maker(graph, name), nullptr) << name;
  for (const auto& [name, rows] : {std::pair("of_w1", 6), std::pair("of_w2", 3)}) {
    const OnnxNode* weight = node(graph, name);
    ASSERT_NE(weight, nullptr) << name;
    EXPECT_EQ(graph.initializer(weight->inputs[1])->value.shape(), Shape{rows}) << name;
  }
  for (const auto& entry : named_quantizers(model)) EXPECT_EQ(entry.quantizer->name(), "") << entry.name;
}

TEST(OnnxExport, WritesDirectCallsAsNodes) {
  Calls model([](const Variable& x) {
    const Variable a = fake_tensor_quant(x, Amax(2.0), {}, 8, false, false);
    const Variable b = scaled_e4m3(a, Tensor::from({1.0f, 2.0f, 3.0f}, {3}));
    return pytorch_quantization::tensor_quant(b, 4.0, 8, false, false).codes;
  });
  const OnnxModel graph = export_onnx(model, {3});
  std::vector<std::string> ops;
  for (const auto& n : graph.nodes) ops.push_back(n.op);
  EXPECT_THAT(ops, ElementsAre("QuantizeLinear", "DequantizeLinear", "QuantizeLinear", "DequantizeLinear",
                               "QuantizeLinear", "Cast"));
  EXPECT_EQ(graph.initializer(graph.nodes[0].inputs[1])->value.item(), 2.0f / 127);
  EXPECT_EQ(std::get<std::int64_t>(*graph.nodes[2].attribute("axis")), 1);
}

TEST(OnnxExport, RejectsCallsWithoutANodeForm) {
  Calls two_axes([](const Variable& x) { return fake_tensor_quant(x, Tensor::full({4, 3}, 1.0)); });
  EXPECT_THAT(error_text(two_axes, {4, 3}), HasSubstr("is [4, 3]: a graph has ranges along one axis"));
  Calls shifted([](const Variable& x) { return fake_tensor_quant(x, 1.0, Tensor::full({3}, 0.5)); });
  EXPECT_THAT(error_text(shifted, {3}), HasSubstr("shifts its input by a bias"));
  Calls moving([](const Variable& x) { return fake_tensor_quant(x, ops::relu(x).tensor()); });
  EXPECT_THAT(error_text(moving, {3}), HasSubstr("amax is computed from an input"));
}

TEST(OnnxExport, RejectsOperatorsWithoutAForm) {
  Calls loss([](const Variable& x) { return ops::mse_loss(x, x); });
  EXPECT_THAT(error_text(loss, {3}),
              HasSubstr("calls the operator mse_loss, which cannot be exported to ONNX"));
}

}  // namespace
}  // namespace fq::onnx_export_test
