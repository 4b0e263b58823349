// Live batch norms of quantized models: evaluation has the bits of the folded model, whose codes stay.

#include "fakequant/layers/model/fold.h"

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/layers/quantizer/detail/folded_weight.h"
#include "layers/networks.h"

namespace fq::fold_test {
namespace {

using namespace test;

/// Sets statistics of both signs with dead channels. With `extreme` a few channels are so large that a
/// per-tensor quantizer rounds all others to 0.
void disturb(BatchNorm& norm, unsigned seed, bool extreme) {
  Variable gamma = norm.weight(), beta = norm.bias();
  Tensor mean = norm.running_mean(), variance = norm.running_var();
  const std::int64_t n = gamma.numel();
  const auto put = [&](Tensor& to, const Tensor& from) { to.copy_from(from); };
  put(gamma.mutable_tensor(), random_tensor({n}, -1.5f, 1.5f, seed));
  put(beta.mutable_tensor(), random_tensor({n}, -0.5f, 0.5f, seed + 1));
  put(mean, random_tensor({n}, -0.3f, 0.3f, seed + 2));
  put(variance, random_tensor({n}, 0.01f, 2.0f, seed + 3));
  auto* g = gamma.mutable_tensor().mutable_data<float>();
  auto* b = beta.mutable_tensor().mutable_data<float>();
  g[0] = 0;
  g[1] = 1e-12f;
  g[2] = -3e-6f;
  g[3] = -0.8f;
  b[1] = 0;
  mean.mutable_data<float>()[1] = 0;
  variance.mutable_data<float>()[5] = 1e9f;
  if (!extreme) return;
  mean.mutable_data<float>()[4] = 1e4f;
  variance.mutable_data<float>()[3] = 1e-12f;
}

void disturb_all(Module& model) {
  unsigned seed = 100;
  for (const auto& [path, module] : model.named_modules())
    if (auto* norm = dynamic_cast<BatchNorm*>(module))
      disturb(*norm, seed += 10, path == "bn2" && dynamic_cast<Graph&>(model).named_slots().size() == 5);
}

/// Bits of the outputs of the model and of each activation quantizer for x.
std::vector<float> evaluated(Module& model, const Tensor& x) {
  model.eval();
  const NoGrad no_grad;
  return model(Variable(x)).tensor().to_vector<float>();
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const std::string& where) {
  ASSERT_EQ(a.size(), b.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    different += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]);
  EXPECT_EQ(different, 0u) << where;
}

/// Quantizes it by the config with batch norms live, and folds it: the output, raw sums of the last batch
/// norm included, keeps its bits.
void expect_folding_changes_nothing(const std::shared_ptr<Graph>& model, const QuantConfig& config,
                                    const Shape& sample, std::size_t norms, const std::string& where) {
  disturb_all(*model);
  Shape one = sample, many = sample;
  one.insert(one.begin(), 1);
  many.insert(many.begin(), 16);
  quantize(*model, config, one);
  observe(*model, random_tensor(many, -1, 1));
  const Tensor x = random_tensor(many, -1.2f, 1.2f, 9);
  const auto live = evaluated(*model, x);
  EXPECT_EQ(fold_batch_norm(*model, one).size(), norms) << where;
  expect_same_bits(live, evaluated(*model, x), where);
}

const ops::ConvOptions kSame{.stride = {}, .padding = {1}, .dilation = {}, .groups = 1};

std::shared_ptr<Graph> ends_in_norm(std::shared_ptr<Module> first, std::int64_t hidden,
                                    std::shared_ptr<Module> second, std::int64_t channels) {
  std::vector<GraphNode> nodes;
  nodes.push_back({"first", std::move(first), {"input"}});
  nodes.push_back({"bn1", std::make_shared<BatchNorm>(hidden), {"first"}});
  nodes.push_back({"relu", make_relu(), {"bn1"}});
  nodes.push_back({"second", std::move(second), {"relu"}});
  nodes.push_back({"bn2", std::make_shared<BatchNorm>(channels), {"second"}});
  return std::make_shared<Graph>(std::move(nodes));
}

TEST(LiveBatchNorm, MatchesTheFoldedModelBitwiseInEvaluation) {
  for (const char* preset : {"int8", "w4a8", "w4a4", "w3a3", "w2a2"})
    for (const Target target : {Target::none, Target::ort, Target::tensorrt}) {
      QuantConfig config = QuantConfig::preset(preset);
      config.target = target;
      const std::string where = std::string(preset) + " for " + std::string(name(target));
      expect_folding_changes_nothing(residual_net(), config, {1, 8, 8}, 2, where + ": residual");
      expect_folding_changes_nothing(
          ends_in_norm(std::make_shared<Linear>(20, 16), 16, std::make_shared<Linear>(16, 12, false), 12),
          config, {20}, 2, where + ": linear");
      expect_folding_changes_nothing(
          ends_in_norm(
              std::make_shared<Conv1d>(3, 8, 3, kSame), 8,
              std::make_shared<Conv1d>(
                  8, 8, 3, ops::ConvOptions{.stride = {2}, .padding = {1}, .dilation = {}, .groups = 4}),
              8),
          config, {3, 17}, 2, where + ": sequences");
      expect_folding_changes_nothing(
          ends_in_norm(std::make_shared<Conv2d>(2, 8, Shape{3}, kSame), 8,
                       std::make_shared<ConvTranspose2d>(
                           8, 6, Shape{2},
                           ops::ConvOptions{.stride = {2}, .padding = {}, .dilation = {}, .groups = 1}),
                       6),
          config, {2, 6, 6}, 2, where + ": transposed");
    }
}

TEST(LiveBatchNorm, MatchesWithOneScaleAndTheirOwnRanges) {
  for (const char* fields : {R"("axis": null)", R"("scale_amax": 0.7)", R"("dynamic": true)",
                             R"("dynamic": true, "axis": null)", R"("learn_amax": true)"}) {
    auto config = [&] {
      return QuantConfig::parse(
          std::string(R"({"preset": "int8", "rules": [{"pattern": "*.weight_quantizer", )") + fields + "}]}");
    };
    expect_folding_changes_nothing(residual_net(), config(), {1, 8, 8}, 2, fields);
  }
}

TEST(LiveBatchNorm, IsFrozenInTrainingAndPassesAllGradients) {
  auto model = residual_net();
  disturb_all(*model);
  quantize(*model, QuantConfig::preset("w4a4"), {1, 1, 8, 8});
  const Tensor x = random_tensor({8, 1, 8, 8}, 0, 1);
  observe(*model, x);
  const auto live = evaluated(*model, x);
  model->train();
  for (const char* path : {"bn1", "bn2"}) dynamic_cast<BatchNorm&>(model->at(path)).freeze();
  const Variable y = (*model)(Variable(x));
  expect_same_bits(y.tensor().to_vector<float>(), live, "frozen");
  ops::cross_entropy(y, Tensor::from(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}, {8})).backward();
  for (const auto& [name, p] : model->named_parameters()) {
    ASSERT_TRUE(p.grad().defined()) << name;
    for (const float g : p.grad().to_vector<float>()) EXPECT_TRUE(std::isfinite(g)) << name;
  }
}

TEST(LiveBatchNorm, IsNotFoldedWithAnotherReader) {
  std::vector<GraphNode> nodes;
  nodes.push_back({"fc", std::make_shared<Linear>(6, 6), {"input"}});
  nodes.push_back({"bn", std::make_shared<BatchNorm>(6), {"fc"}});
  nodes.push_back({"add", std::make_shared<Add>(), {"bn", "fc"}});
  Graph model(std::move(nodes));
  quantize(model, QuantConfig::preset("int8"), {1, 6});
  EXPECT_FALSE(dynamic_cast<BatchNorm&>(model.at("bn")).folds_into_layer());
  EXPECT_TRUE(fold_batch_norm(model, {1, 6}).empty());
}

/// Folding any channel factor keeps the codes of the layer's weight.
TEST(FoldedWeight, KeepsItsCodesForAnyFactor) {
  constexpr std::int64_t outputs = 40, inputs = 500;
  for (int bits = 2; bits <= 8; ++bits)
    for (const char* calibrated : {"max", "small"}) {
      std::vector<GraphNode> nodes;
      nodes.push_back({"fc", std::make_shared<Linear>(inputs, outputs), {"input"}});
      Graph model(std::move(nodes));
      quantize(model,
               QuantConfig::parse(
                   R"({"preset": "int8", "rules": [{"pattern": "*.weight_quantizer", "num_bits": )" +
                   std::to_string(bits) + "}]}"),
               {1, inputs});
      auto& layer = dynamic_cast<QuantModule&>(model.at("fc"));
      TensorQuantizer& q = *layer.weight_quantizer();
      Variable w = layer.quantized_weight();
      w.mutable_tensor().copy_from(random_tensor({outputs, inputs}, -1, 1, static_cast<unsigned>(bits)));
      const Tensor ranges = random_tensor({outputs}, 0.2f, calibrated[0] == 'm' ? 1.0f : 0.4f, 7);
      q.set_amax(ranges);
      const Grid grid = q.grid();
      auto* values = w.mutable_tensor().mutable_data<float>();
      for (std::int64_t i = 0; i < w.numel(); i += 3) {  // ties, and floats next to them
        const float s = grid.scale.data<float>()[i / inputs];
        const float tie = (std::floor(values[i] / s) + 0.5f) * s;
        values[i] = i % 2 == 0 ? tie : std::nextafter(tie, i % 4 == 1 ? -2.0f : 2.0f);
      }
      const auto before = code_values(*q.weight(w).quantized()).to_vector<float>();
      const auto original = w.tensor().to_vector<float>();
      std::vector<detail::FoldedChannel> channels;
      for (std::int64_t c = 0; c < outputs; ++c)
        channels.push_back({std::ldexp(1.0f + 0.013f * static_cast<float>(c), static_cast<int>(c % 30) - 15) *
                                (c % 2 == 0 ? 1.0f : -1.0f),
                            0.1f});
      detail::fold_into_weight(layer, 0, channels);
      const auto after = code_values(*q.weight(w).quantized()).to_vector<float>();
      const auto folded = w.tensor().to_vector<float>(), amax = q.amax().to_vector<float>();
      std::size_t moved = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        const std::size_t c = i / inputs;
        ASSERT_EQ(after[i], channels[c].factor < 0 ? -before[i] : before[i]) << bits << " bits, " << i;
        ASSERT_EQ(amax[c], ranges.data<float>()[c] * std::abs(channels[c].factor));
        const float product = original[i] * channels[c].factor;
        moved += folded[i] != product;
        ASSERT_NEAR(folded[i], product, 1e-6f * amax[c]);
      }
      EXPECT_LT(moved, before.size() / 6);
    }
}

TEST(FoldedWeight, KeepsTheBiasOfASilencedChannel) {
  auto model = ends_in_norm(std::make_shared<Linear>(20, 16), 16, std::make_shared<Linear>(16, 12), 12);
  disturb_all(*model);
  quantize(*model, QuantConfig::preset("int8"), {1, 20});
  observe(*model, random_tensor({16, 20}, -1, 1));
  const Variable beta = dynamic_cast<BatchNorm&>(model->at("bn2")).bias();
  fold_batch_norm(*model, {1, 20});
  const auto y = evaluated(*model, random_tensor({4, 20}, -1, 1, 3));
  for (std::size_t i = 0; i < 4; ++i)  // with gamma 0 the output is beta
    EXPECT_NEAR(y[12 * i], beta.tensor().data<float>()[0], 1e-6f);
  auto& layer = dynamic_cast<QuantModule&>(model->at("second"));
  const auto codes = code_values(*layer.weight_quantizer()->weight(layer.quantized_weight()).quantized());
  for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(codes.data<float>()[i], 0);
}

TEST(FoldedWeight, RoundTripsPerChannelRanges) {
  const auto config =
      QuantConfig::parse(R"({"preset": "int8", "rules": [{"pattern": "*.weight_quantizer", "axis": null}]})");
  auto model = residual_net(), other = residual_net();
  disturb_all(*model);
  quantize(*model, config, {1, 1, 8, 8});
  observe(*model, random_tensor({16, 1, 8, 8}, 0, 1));
  fold_batch_norm(*model, {1, 1, 8, 8});
  StateDict state;
  save_quantizers(*model, state);
  fold_batch_norm(*other, {1, 1, 8, 8});
  quantize(*other, config, {1, 1, 8, 8});
  const auto from = model->named_parameters(), to = other->named_parameters();
  ASSERT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    Variable parameter = to[i].second;
    parameter.mutable_tensor().copy_from(from[i].second.tensor());
  }
  load_quantizers(*other, state);
  const Tensor x = random_tensor({4, 1, 8, 8}, 0, 1, 3);
  expect_same_bits(evaluated(*model, x), evaluated(*other, x), "loaded");
}

TEST(FoldedWeight, RejectsNonFiniteValues) {
  auto model = residual_net();
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  observe(*model, random_tensor({16, 1, 8, 8}, 0, 1));
  Variable gamma = dynamic_cast<BatchNorm&>(model->at("bn1")).weight();
  gamma.mutable_tensor().mutable_data<float>()[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW((void)evaluated(*model, random_tensor({2, 1, 8, 8}, 0, 1)), NumericError);
  EXPECT_THROW((void)fold_batch_norm(*model, {1, 1, 8, 8}), ArgumentError);
}

}  // namespace
}  // namespace fq::fold_test
