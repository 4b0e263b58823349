// Layers for engines that round inputs as they run, against the reference functions, which have the bits of
// the engines (tests/golden/engines.h5): every bit, for any number of threads.

#include <gtest/gtest.h>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/ops/detail/engine_rows.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/modules/quant_engine_layers.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"
#include "fakequant/reference/ggml.h"
#include "fakequant/reference/onnx.h"
#include "fakequant/reference/xnnpack.h"
#include "layers/networks.h"

namespace fq::engine_layers_test {
namespace {

using namespace test;
using detail::KeptEngineWeight;

std::shared_ptr<Graph> one_layer(std::int64_t in, std::int64_t out, bool bias = true) {
  return std::make_shared<Graph>(
      std::vector<GraphNode>{{"fc", std::make_shared<Linear>(in, out, bias), {"input"}}});
}

std::shared_ptr<Graph> quantized_layer(const char* preset, std::int64_t in, std::int64_t out,
                                       bool bias = true) {
  auto model = one_layer(in, out, bias);
  quantize(*model, QuantConfig::preset(preset), {1, in});
  observe(*model, random_tensor({4, in}, -1, 1));
  return model;
}

/// Numbers of many magnitudes, with rows of one sign and of zeros.
Tensor inputs(const Shape& shape) {
  Tensor x = random_tensor(shape, -1, 1, 7);
  auto* v = x.mutable_data<float>();
  const std::int64_t columns = shape.back();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t row = i / columns;
    v[i] *= std::ldexp(1.0f, static_cast<int>(i % 13 - 6));
    if (row % 5 == 1) v[i] = std::abs(v[i]);
    if (row % 5 == 2) v[i] = -std::abs(v[i]);
    if (row % 5 == 3) v[i] = 0;
  }
  return x;
}

Tensor evaluated(Module& model, const Tensor& x) {
  const NoGrad no_grad;
  model.eval();
  return model(Variable(x)).tensor();
}

const Linear& layer(Module& model) { return dynamic_cast<const Linear&>(model.at("fc")); }
TensorQuantizer& weights(Module& model) {
  return *dynamic_cast<QuantModule&>(model.at("fc")).weight_quantizer();
}

/// fl(y + b), as a node of its own adds it.
Tensor with_bias(const Tensor& y, const Tensor& bias) {
  Tensor out = y.clone();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data<float>()[i] += bias.data<float>()[i % bias.numel()];
  return out;
}

/// For one thread and more.
void expect_bits(Module& model, const Tensor& x, const Tensor& expected) {
  const int before = detail::threads();
  for (const int threads : {1, 2, 3}) {
    detail::set_threads(threads);
    EXPECT_TRUE(bitwise_equal(evaluated(model, x), expected)) << threads << " threads";
  }
  detail::set_threads(before);
}

TEST(EngineLayers, Q40MatchesGgmlBitwiseInBothBuffers) {
  for (const std::int64_t outputs : {24, 40, 10})
    for (const std::int64_t rows : {1, 7, 70}) {
      auto model = quantized_layer("q4_0", 96, outputs);
      const Tensor x = inputs({rows, 96});
      const auto w = ggml::quantize_q4_0(layer(*model).weight().tensor());
      const auto buffer = outputs % 8 == 0 ? ggml::Buffer::repack : ggml::Buffer::plain;
      expect_bits(*model, x, with_bias(ggml::matmul_q4_0_q8_0(x, w, buffer), layer(*model).bias().tensor()));
    }
}

TEST(EngineLayers, Q80MatchesGgmlBitwise) {
  for (const std::int64_t outputs : {24, 10}) {
    auto model = quantized_layer("q8_0", 64, outputs, false);
    const Tensor x = inputs({9, 64});
    expect_bits(*model, x, ggml::matmul_q8_0(x, ggml::quantize_q8_0(layer(*model).weight().tensor())));
  }
}

TEST(EngineLayers, EightBitsMatchXnnpackBitwise) {
  auto model = quantized_layer("8da8w", 50, 21);
  const Tensor x = inputs({9, 50});
  const Variable w = weights(*model).weight(layer(*model).weight());
  expect_bits(*model, x,
              xnnpack::linear_qd8_qc8w(x, w.quantized()->codes, w.quantized()->grid.scale,
                                       layer(*model).bias().tensor()));
}

TEST(EngineLayers, FourBitsMatchXnnpackBitwise) {
  auto model = quantized_layer("8da4w", 96, 21);
  const Tensor x = inputs({9, 96});
  const Variable w = weights(*model).weight(layer(*model).weight());
  const Tensor scale = w.quantized()->grid.scale;
  EXPECT_TRUE(bitwise_equal(scale.to(DType::bf16).to(DType::f32), scale));
  expect_bits(*model, x,
              xnnpack::linear_qd8_qb4w(x, w.quantized()->codes, scale.reshape({21, 3}), 32,
                                       layer(*model).bias().tensor()));
}

TEST(EngineLayers, FourBitsPerChannelUseOneBlock) {
  auto model = one_layer(96, 21);
  auto config = QuantConfig::preset("8da4w");
  config.rules.push_back({.pattern = "*weight_quantizer", .fields = {.num_bits = 4, .axis = Axes(0)}});
  quantize(*model, config, {1, 96});
  observe(*model, random_tensor({4, 96}, -1, 1));
  const Tensor x = inputs({9, 96});
  const Variable w = weights(*model).weight(layer(*model).weight());
  expect_bits(*model, x,
              xnnpack::linear_qd8_qc4w(x, w.quantized()->codes, w.quantized()->grid.scale,
                                       layer(*model).bias().tensor()));
}

Tensor transposed(const Tensor& codes) {
  Tensor out = Tensor::empty({codes.dim(1), codes.dim(0)}, DType::i8);
  for (std::int64_t i = 0; i < codes.numel(); ++i)
    out.mutable_data<std::int8_t>()[i % codes.dim(1) * codes.dim(0) + i / codes.dim(1)] =
        codes.data<std::int8_t>()[i];
  return out;
}

TEST(EngineLayers, DynamicIntegersMatchOnnxRuntimeBitwisePerSample) {
  auto model = quantized_layer("int8_dynamic", 50, 21);
  const Tensor x = inputs({10, 50});
  const Variable w = weights(*model).weight(layer(*model).weight());
  const Tensor codes = transposed(w.quantized()->codes);
  std::vector<float> expected;
  for (std::int64_t i = 0; i < 10; ++i)
    for (const float v : onnx::dynamic_quantize_matmul(x.slice(i, i + 1), codes, w.quantized()->grid.scale,
                                                       layer(*model).bias().tensor())
                             .to_vector<float>())
      expected.push_back(v);
  expect_bits(*model, x, Tensor::from(expected, {10, 21}));
}

TEST(EngineLayers, RuleSelectsOneRangeForAllSamples) {
  auto model = one_layer(50, 21);
  auto config = QuantConfig::preset("int8_dynamic");
  config.rules.push_back({.pattern = "*input_quantizer", .fields = {.axis = std::optional<Axes>()}});
  quantize(*model, config, {1, 50});
  observe(*model, random_tensor({4, 50}, -1, 1));
  const Tensor x = inputs({10, 50});
  const Variable w = weights(*model).weight(layer(*model).weight());
  expect_bits(*model, x,
              onnx::dynamic_quantize_matmul(x, transposed(w.quantized()->codes), w.quantized()->grid.scale,
                                            layer(*model).bias().tensor()));
}

TEST(EngineLayers, TokensOfASampleShareItsRange) {
  auto model = quantized_layer("int8_dynamic", 32, 8);
  const Tensor x = inputs({3, 5, 32});
  const Tensor all = evaluated(*model, x);
  EXPECT_EQ(all.shape(), (Shape{3, 5, 8}));
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_TRUE(bitwise_equal(all.slice(i, i + 1), evaluated(*model, x.slice(i, i + 1))));
}

/// Gradients equal the gradients of the product of the rounded inputs.
TEST(EngineLayers, GradientsAreStraightThrough) {
  const BackwardScope exact(BackwardType::fp32);
  for (const char* preset : {"q4_0", "q8_0", "8da8w", "8da4w", "int8_dynamic"}) {
    auto model = quantized_layer(preset, 64, 16);
    const Variable x(random_tensor({6, 64}, -2, 2), true);
    const Variable y = (*model)(x);
    const Tensor dy = random_tensor({6, 16}, -1, 1, 3);
    y.backward(dy);
    const Linear& fc = layer(*model);
    const Variable values(dequantize(*weights(*model).weight(fc.weight()).quantized()), true);
    const Variable floats(x.tensor(), true), bias(fc.bias().tensor(), true);
    ops::linear(floats, values, bias).backward(dy);
    EXPECT_TRUE(bitwise_equal(x.grad(), floats.grad())) << preset;
    EXPECT_TRUE(bitwise_equal(fc.bias().grad(), bias.grad())) << preset;
    // the rounded x is within one step of x: 4 / 255, or 2 / 127
    for (std::int64_t i = 0; i < values.numel(); ++i)
      EXPECT_NEAR(fc.weight().grad().data<float>()[i], values.grad().data<float>()[i], 6 * 0.5 * 4.0 / 254)
          << preset;
  }
}

TEST(EngineLayers, CachePackedWeightsUntilCodesChange) {
  for (const char* preset : {"q4_0", "q8_0", "8da4w", "8da8w", "int8_dynamic"}) {
    auto model = quantized_layer(preset, 64, 16);
    const Tensor x = inputs({5, 64});
    Variable weight = layer(*model).weight();
    const auto expect_its_codes = [&](const char* when) {
      const NoGrad no_grad;
      const auto& fc = dynamic_cast<const QuantEngineLinear&>(model->at("fc"));
      const Tensor y =
          ops::engine_linear(Variable(x), weights(*model).weight(weight), fc.bias(), fc.engine()).tensor();
      EXPECT_TRUE(bitwise_equal(evaluated(*model, x), y)) << preset << when;
      EXPECT_TRUE(bitwise_equal(evaluated(*model, x), y)) << preset << when;
    };
    expect_its_codes(" at first");
    auto* values = weight.mutable_tensor().mutable_data<float>();
    for (std::int64_t i = 0; i < weight.numel(); ++i) values[i] *= -0.75f;
    expect_its_codes(" after a write");
    model->train();
    (*model)(Variable(x)).backward(random_tensor({5, 16}, -1, 1));
    expect_its_codes(" after a step");
  }
  KeptEngineWeight kept;
  const auto blocks = ggml::quantize_q4_0(random_tensor({16, 64}, -1, 1));
  QuantizedTensor w{blocks.codes, {}, {}};
  w.grid.format = IntFormat{.bits = 4};
  w.grid.granularity = Granularity::blocks({{-1, 32}});
  w.grid.scale = blocks.scale.to(DType::f32);
  const auto first = kept.of(w, RowEngine::ggml);
  EXPECT_EQ(kept.of(w, RowEngine::ggml), first);
  w.codes.mutable_data<std::int8_t>()[0] ^= 1;
  const auto second = kept.of(w, RowEngine::ggml);
  EXPECT_NE(second, first);
  w.grid.scale = w.grid.scale.clone();
  EXPECT_NE(kept.of(w, RowEngine::ggml), second);
}

/// As the plan of a step's memory does it.
TEST(EngineLayers, MetaStepHasTheExecutedShapes) {
  const Variable w(Tensor::empty({16, 64}, DType::f32, Device::meta()), true);
  const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(1));
  for (const RowEngine engine :
       {RowEngine::ggml, RowEngine::xnnpack, RowEngine::ort_dynamic, RowEngine::ort_dynamic_samples}) {
    const Variable x(Tensor::empty({6, 64}, DType::f32, Device::meta()), true);
    ops::engine_linear(x, ops::quantize(w, grid), {}, engine)
        .backward(Tensor::empty({6, 16}, DType::f32, Device::meta()));
    EXPECT_EQ(x.grad().shape(), (Shape{6, 64})) << name(engine);
    EXPECT_EQ(w.grad().shape(), (Shape{16, 64})) << name(engine);
  }
}

TEST(EngineLayers, StateRestoresTheGrid) {
  for (const char* preset : {"q4_0", "8da4w"}) {
    auto model = quantized_layer(preset, 64, 16);
    StateDict state;
    save_quantizers(*model, state);
    const Tensor x = inputs({5, 64}), y = evaluated(*model, x);
    weights(*model).update([](QuantParams& s) { s.weight_scheme = &detail::plain_weights(); });
    EXPECT_FALSE(bitwise_equal(evaluated(*model, x), y)) << preset;
    load_quantizers(*model, state);
    EXPECT_TRUE(bitwise_equal(evaluated(*model, x), y)) << preset;
  }
}

TEST(EngineLayers, GgmlEmbeddingReadsCodes) {
  const auto table = std::make_shared<Embedding>(11, 32);
  Graph model({{"table", table, {"input"}}, {"fc", std::make_shared<Linear>(32, 8), {"table"}}});
  const Tensor ids = Tensor::from<std::int64_t>({3, 0, 10, 3}, {2, 2});
  Tensor weight;
  for (const auto& [name, value] : model.named_parameters())
    if (name == "table.weight") weight = value.tensor();
  quantize(model, QuantConfig::preset("q4_0"), {2, 2});
  const auto blocks = ggml::quantize_q4_0(weight);
  const Variable rows = dynamic_cast<Module&>(model.at("table"))(Variable(ids));
  const Tensor values = rows.tensor();
  for (std::int64_t k = 0; k < 32; ++k)
    EXPECT_EQ(values.data<float>()[k], static_cast<float>(blocks.codes.data<std::int8_t>()[3 * 32 + k]) *
                                           static_cast<float>(blocks.scale.data<float16>()[3]));
}

TEST(EngineLayers, UnsupportedLayersStayFloatAndAreNamed) {
  auto model = residual_net();
  model->eval();
  const auto warnings = quantize(*model, QuantConfig::preset("8da8w"), {1, 1, 8, 8});
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_NE(warnings[0].find("'conv1' stays in floats"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("--target ort"), std::string::npos) << warnings[0];
  EXPECT_NE(dynamic_cast<QuantEngineLinear*>(&model->at("fc")), nullptr);
  EXPECT_EQ(dynamic_cast<QuantModule*>(&model->at("conv1")), nullptr);

  auto narrow = one_layer(40, 8);
  const auto of_rows = quantize(*narrow, QuantConfig::preset("q4_0"), {1, 40});
  ASSERT_EQ(of_rows.size(), 1U);
  EXPECT_NE(of_rows[0].find("rows of 40 are no whole blocks of 32"), std::string::npos) << of_rows[0];

  auto config = QuantConfig::preset("q4_0");
  config.strict = true;
  auto strict = one_layer(40, 8);
  EXPECT_THROW(quantize(*strict, config, {1, 40}), ArgumentError);
}

std::string error_text(const char* preset, Target target) {
  auto config = QuantConfig::preset(preset);
  config.target = target;
  auto model = one_layer(64, 8);
  try {
    quantize(*model, config, {1, 64});
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return {};
}

TEST(EngineLayers, RejectFormatsOfOtherEnginesAndSuggestAPreset) {
  EXPECT_NE(error_text("int8", Target::ggml).find("use --preset q4_0 or q8_0"), std::string::npos);
  EXPECT_NE(error_text("int8_weight_only", Target::xnnpack).find("'fc.input_quantizer' differs"),
            std::string::npos);
  EXPECT_NE(error_text("8da8w", Target::ggml).find("ggml does not multiply blocks of other than 32"),
            std::string::npos);
  EXPECT_NE(error_text("q4_0", Target::ort_dynamic).find("ONNX Runtime does not multiply"),
            std::string::npos);
  auto config = QuantConfig::preset("q4_0");
  config.arithmetic = Arithmetic::reference;
  auto model = one_layer(64, 8);
  EXPECT_THROW(quantize(*model, config, {1, 64}), ArgumentError);
  EXPECT_EQ(error_text("8da8w", Target::ort_dynamic), "");  // rows of one sample are the sample
}

TEST(EngineLayers, EveryTargetHasARowInTheTable) {
  for (const auto& profile : target_profiles()) {
    EXPECT_EQ(target_named(profile.name), profile.target);
    EXPECT_EQ(name(profile.target), profile.name);
  }
  EXPECT_EQ(target_named("openvino"), Target::ort);  // reads the same files
  EXPECT_THROW((void)target_named("tflite"), ArgumentError);
  EXPECT_EQ(QuantConfig::parse(R"({"preset": "q4_0"})").target, Target::ggml);
  EXPECT_EQ(QuantConfig::parse(R"({"preset": "q4_0", "target": "none"})").target, Target::none);
}

TEST(EngineLayers, RangesWithoutAFiniteFactorMatchTheReference) {
  Tensor x = inputs({6, 96});
  auto* v = x.mutable_data<float>();
  for (std::int64_t k = 0; k < 96; ++k) {
    v[k] = std::ldexp(v[k], -140);  // their factor is infinite
    v[96 + k] = k % 2 == 0 ? 3e38f : -3e38f;
    v[2 * 96 + k] = -0.0f;
  }
  auto q4_0 = quantized_layer("q4_0", 96, 24);
  const auto w = ggml::quantize_q4_0(layer(*q4_0).weight().tensor());
  expect_bits(*q4_0, x,
              with_bias(ggml::matmul_q4_0_q8_0(x, w, ggml::Buffer::repack), layer(*q4_0).bias().tensor()));
  auto by_rows = quantized_layer("8da4w", 96, 24);
  const Variable codes = weights(*by_rows).weight(layer(*by_rows).weight());
  expect_bits(
      *by_rows, x,
      xnnpack::linear_qd8_qb4w(x, codes.quantized()->codes, codes.quantized()->grid.scale.reshape({24, 3}),
                               32, layer(*by_rows).bias().tensor()));
}

TEST(EngineLayers, RejectNaNInput) {
  for (const char* preset : {"q4_0", "8da8w", "int8_dynamic"}) {
    auto model = quantized_layer(preset, 32, 8);
    Tensor x = inputs({2, 32});
    x.mutable_data<float>()[40] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THROW((void)evaluated(*model, x), NumericError) << preset;
  }
}

}  // namespace
}  // namespace fq::engine_layers_test
