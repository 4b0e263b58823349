#include "fakequant/layers/modules/attention.h"

#include <cmath>
#include <set>
#include <span>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/attention.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/modules/dot_product_attention.h"
#include "fakequant/layers/modules/quant_attention.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantize.h"
#include "layers/eighths.h"

namespace fq::attention_layer_test {
namespace {

using test::eighths;

TEST(AttentionLayer, SupportsSelfAndCrossAttention) {
  Attention self({.width = 8, .heads = 2, .causal = true, .rotary = true});
  EXPECT_EQ(self(eighths({2, 5, 8}, 1)).shape(), (Shape{2, 5, 8}));
  Attention cross({.width = 8, .heads = 4, .kv_heads = 2, .head_size = 3, .memory_width = 6});
  EXPECT_EQ(cross(eighths({2, 5, 8}, 1), eighths({2, 7, 6}, 2)).shape(), (Shape{2, 5, 8}));
}

/// A key that the mask hides changes nothing.
TEST(AttentionLayer, AcceptsAMask) {
  Attention layer({.width = 4, .heads = 2});
  const Variable mask(Tensor::from<std::uint8_t>({1, 1, 0}, {3}));
  Tensor memory = eighths({1, 3, 4}, 2).tensor().clone();
  const auto run = [&] {
    return layer(std::vector<Variable>{eighths({1, 2, 4}, 1), Variable(memory), mask})
        .tensor()
        .to_vector<float>();
  };
  const auto before = run();
  memory = memory.clone();
  memory.mutable_data<float>()[11] = 50;
  EXPECT_EQ(run(), before);
}

TEST(AttentionLayer, RejectsIndivisibleSizes) {
  EXPECT_THROW(Attention({.width = 8, .heads = 3}), ArgumentError);
  EXPECT_THROW(Attention({.width = 8, .heads = 4, .kv_heads = 3}), ArgumentError);
  EXPECT_THROW(Attention({.width = 6, .heads = 2, .rotary = true}), ArgumentError);
  EXPECT_THROW(Attention({.width = 8, .heads = 2, .dropout = 1}), ArgumentError);
  Positions positions(4, 2);
  EXPECT_THROW((void)positions(eighths({1, 5, 2}, 1)), ArgumentError);
}

/// Norms and biases of the float layer stay in the quantized one.
TEST(AttentionLayer, QuantizationKeepsNormsAndBiases) {
  const Attention layer({.width = 8,
                         .heads = 2,
                         .kv_heads = 1,
                         .rotary = true,
                         .bias = false,
                         .out_bias = true,
                         .rotary_base = 100,
                         .qk_norm = 1e-6});
  std::set<std::string> names;
  for (const auto& [name, value] : layer.named_parameters()) names.insert(name);
  EXPECT_EQ(names,
            (std::set<std::string>{"q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight",
                                   "out_proj.bias", "q_norm.weight", "k_norm.weight"}));
  QuantAttention made(layer);
  const Variable x = eighths({2, 5, 8}, 1);
  EXPECT_EQ(made(x).shape(), (Shape{2, 5, 8}));
  EXPECT_EQ(made.named_parameters().size(), names.size());
  EXPECT_THROW(Attention({.width = 8, .heads = 2, .rotary_base = 0}), ArgumentError);
  using Kind = RotaryScaling::Kind;
  for (const RotaryScaling& scaling :
       {RotaryScaling{.kind = Kind::linear, .factor = 0.5}, RotaryScaling{.kind = Kind::dynamic, .factor = 2},
        RotaryScaling{.kind = Kind::llama3, .factor = 2, .context = 8, .low = 4},
        RotaryScaling{.kind = Kind::yarn, .factor = 2, .context = 8, .fast = 1}})
    EXPECT_THROW(Attention({.width = 8, .heads = 2, .rotary_scaling = scaling}), ArgumentError);
  EXPECT_THROW(Attention({.width = 8, .heads = 2, .qk_norm = -1}), ArgumentError);
}

/// A norm of each head leaves the length of queries and keys out: scores do not change with the weights'
/// size.
TEST(AttentionLayer, NormsRemoveTheScaleOfQueriesAndKeys) {
  Attention layer({.width = 8, .heads = 2, .qk_norm = 1e-12});
  const Variable x = eighths({1, 4, 8}, 3);
  const auto before = layer(x).tensor().to_vector<float>();
  for (auto& [name, value] : layer.named_parameters())
    if (name.starts_with("q_proj") || name.starts_with("k_proj")) {
      Variable parameter = value;
      for (float& v : std::span(parameter.mutable_tensor().mutable_data<float>(), std::size_t(value.numel())))
        v *= 4;
    }
  const auto after = layer(x).tensor().to_vector<float>();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-6);
}

TEST(DotProductAttentionLayer, MatchesTheOperator) {
  const Variable q = eighths({2, 4, 3, 8}, 1), k = eighths({2, 2, 3, 8}, 2), v = eighths({2, 2, 3, 5}, 3);
  DotProductAttention layer({.causal = true, .scale = 0.3});
  EXPECT_EQ(
      layer(std::vector<Variable>{q, k, v}).tensor().to_vector<float>(),
      ops::scaled_dot_product_attention(q, k, v, {.causal = true, .scale = 0.3}).tensor().to_vector<float>());
  const Variable mask(Tensor::from<float>({0, -1e30F, 0}, {3}));
  DotProductAttention usual;
  EXPECT_EQ(usual(std::vector<Variable>{q, k, v, mask}).tensor().to_vector<float>(),
            ops::scaled_dot_product_attention(q, k, v, {}, mask).tensor().to_vector<float>());
  EXPECT_THROW((void)usual(q, k), ArgumentError);
}

/// On codes the layer gives the same output as attention with projections for equal queries, keys and values.
TEST(DotProductAttentionLayer, IsQuantizedLikeAttention) {
  const auto graph = [] {
    return build_model(ModelSpec::parse(R"([
      {"name": "heads", "type": "reshape", "options": {"shape": [2, 3, 4]}},
      {"name": "attend", "type": "scaled_dot_product_attention", "options": {"causal": true},
       "inputs": ["heads", "heads", "heads"]}])"),
                       {24});
  };
  auto config = QuantConfig::preset("int8");
  for (const char* pattern : {"*bmm_quantizer", "*softmax_quantizer"})
    config.rules.push_back({.pattern = pattern, .fields = {.num_bits = 8}});
  const auto net = graph();
  (void)quantize(*net, config, {1, 24});
  EXPECT_EQ(net->at("attend").type(), "quant_scaled_dot_product_attention");
  const Variable x = eighths({3, 24}, 5);
  for (const auto& name : QuantAttention::quantizer_names()) {
    auto& quantizer = dynamic_cast<TensorQuantizer&>(net->at("attend." + name));
    EXPECT_TRUE(quantizer.enabled()) << name;
    quantizer.set_amax(Tensor::scalar(1));
  }
  net->eval();
  const auto found = (*net)(x).tensor().to_vector<float>(),
             floats = (*graph())(x).tensor().to_vector<float>();
  float off = 0;
  for (std::size_t i = 0; i < found.size(); ++i) off = std::max(off, std::abs(found[i] - floats[i]));
  EXPECT_GT(off, 0.0f);
  EXPECT_LT(off, 0.02f);  // half a step of values, 1/254, and of probabilities, for each of three keys
}

/// The projections are quantized as any linear layer; q, k and v read one tensor through one quantizer.
TEST(AttentionLayer, ProjectionsShareTheInputQuantizer) {
  Attention layer({.width = 8, .heads = 2, .causal = true});
  (void)quantize(layer, QuantConfig::preset("int8"), {2, 5, 8});
  std::set<const TensorQuantizer*> inputs;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    const auto* quant = dynamic_cast<QuantLinear*>(&layer.at(name));
    ASSERT_NE(quant, nullptr) << name;
    inputs.insert(quant->input_quantizers()[0].get());
  }
  EXPECT_EQ(inputs.size(), 1u);
  EXPECT_NE(dynamic_cast<QuantLinear*>(&layer.at("out_proj")), nullptr);
}

}  // namespace
}  // namespace fq::attention_layer_test
