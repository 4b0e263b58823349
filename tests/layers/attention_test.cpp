#include "fakequant/layers/modules/attention.h"

#include <set>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantize.h"

namespace fq::attention_layer_test {
namespace {

Variable values(const Shape& shape, std::uint64_t seed) {
  Tensor x = Tensor::empty(shape, DType::f32);
  auto* to = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i)
    to[i] = static_cast<float>((static_cast<std::uint64_t>(i) * 7 + seed * 13) % 17) / 8.0f - 1.0f;
  return Variable(x);
}

TEST(AttentionLayer, ReadsItselfOrAnother) {
  Attention self({.width = 8, .heads = 2, .causal = true, .rotary = true});
  EXPECT_EQ(self(values({2, 5, 8}, 1)).shape(), (Shape{2, 5, 8}));
  Attention cross({.width = 8, .heads = 4, .kv_heads = 2, .head_size = 3, .memory_width = 6});
  EXPECT_EQ(cross(values({2, 5, 8}, 1), values({2, 7, 6}, 2)).shape(), (Shape{2, 5, 8}));
}

/// A key that the mask hides changes nothing.
TEST(AttentionLayer, TakesAMask) {
  Attention layer({.width = 4, .heads = 2});
  const Variable mask(Tensor::from<std::uint8_t>({1, 1, 0}, {3}));
  Tensor memory = values({1, 3, 4}, 2).tensor().clone();
  const auto run = [&] {
    return layer(std::vector<Variable>{values({1, 2, 4}, 1), Variable(memory), mask})
        .tensor()
        .to_vector<float>();
  };
  const auto before = run();
  memory = memory.clone();
  memory.mutable_data<float>()[11] = 50;
  EXPECT_EQ(run(), before);
}

TEST(AttentionLayer, RefusesSizesThatDoNotDivide) {
  EXPECT_THROW(Attention({.width = 8, .heads = 3}), ArgumentError);
  EXPECT_THROW(Attention({.width = 8, .heads = 4, .kv_heads = 3}), ArgumentError);
  EXPECT_THROW(Attention({.width = 6, .heads = 2, .rotary = true}), ArgumentError);
  Positions positions(4, 2);
  EXPECT_THROW((void)positions(values({1, 5, 2}, 1)), ArgumentError);
}

/// The projections are quantized as any linear layer; q, k and v read one tensor through one quantizer.
TEST(AttentionLayer, ProjectionsShareTheQuantizerOfTheirInput) {
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
