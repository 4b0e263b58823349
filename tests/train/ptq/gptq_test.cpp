#include <cmath>

#include "fakequant/core/error.h"
#include "fakequant/core/random.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/matrices.h"
#include "train/ptq/layer_errors.h"

namespace fq::gptq_test {
namespace {

using namespace test;

ptq::Report run(Module& model, const ptq::GptqOptions& options = {}) {
  return ptq::gptq(model, *digit_batches("train"), options);
}

TEST(Gptq, ReducesTheErrorOfEveryLayerOnHeldOutImages) {
  for (const std::string name : {"cnn", "mlp"})
    for (const int bits : {4, 3})
      expect_smaller_errors(name, integers(bits, 0), [](Module& model) { return run(model); });
}

TEST(Gptq, SupportsActivationOrder) {
  expect_smaller_errors("mlp", integers(4, 8), [](Module& model) { return run(model, {.act_order = true}); });
}

TEST(Gptq, ChoosesCodesInBlocks) {
  const auto config = QuantConfig::parse(R"({"rules": [{"pattern": "*weight_quantizer", "num_bits": 4,
      "block_sizes": {"-1": 16}}]})");
  expect_smaller_errors("mlp", config, [](Module& model) { return run(model); });
}

/// GPTQ chooses values that the quantizer reproduces, with block scales recomputed from them.
TEST(Gptq, ChoosesFloatsThatQuantizersReproduce) {
  for (const std::string preset : {"mxfp4", "nvfp4", "mxfp8", "mxint8", "fp8"}) {
    SCOPED_TRACE(preset);
    expect_smaller_errors("mlp", QuantConfig::preset(preset), [](Module& model) { return run(model); });
  }
  expect_smaller_errors("cnn", QuantConfig::preset("nvfp4"), [](Module& model) { return run(model); });
}

/// Scales of subnormal E4M3 and of powers of two beyond reach, and blocks of zeros.
TEST(Gptq, KeepsTheScalesOfSmallBlocks) {
  for (const std::string preset : {"mxfp4", "nvfp4", "mxint8"}) {
    SCOPED_TRACE(preset);
    auto model = trained("mlp");
    Variable weight = list_layers(*model).front().weight;
    auto* w = weight.mutable_tensor().mutable_data<float>();
    for (std::int64_t i = 0; i < weight.numel(); ++i)
      w[i] *= i / 64 % 8 == 0 ? 0.0f : std::exp2(-3.0f * static_cast<float>(i / 64 % 8));
    (void)quantize(*model, QuantConfig::preset(preset), digit_shape());
    (void)calibrate(*model, *digit_batches("train"), {.samples = 512});
    for (const auto& layer : run(*model).layers) EXPECT_LT(layer.after, layer.before) << layer.path;
    expect_weights_on_their_grid(*model);
  }
}

TEST(Gptq, KeepsRangesAndIsDeterministic) {
  auto model = calibrated("cnn", integers(4, 8)), again = calibrated("cnn", integers(4, 8));
  const auto ranges = [](Module& m) {
    std::vector<float> out;
    for (const auto& q : named_quantizers(m))
      if (q.quantizer->enabled())
        for (const float v : q.quantizer->amax().to_vector<float>()) out.push_back(v);
    return out;
  };
  const auto before = ranges(*model);
  (void)run(*model);
  (void)run(*again);
  EXPECT_EQ(ranges(*model), before);
  EXPECT_EQ(logits(*model), logits(*again));
  const auto second = run(*model);  // nothing is left to round
  for (const auto& layer : second.layers) EXPECT_EQ(layer.after, 0) << layer.path;
}

TEST(Gptq, ReportsSkippedLayers) {
  const auto model = calibrated("cnn", QuantConfig::parse(R"({"rules": [
      {"pattern": "*weight_quantizer", "num_bits": 4, "axis": 0}, {"pattern": "fc.*", "enable": false},
      {"pattern": "conv2.weight_quantizer", "num_bits": [4, 3], "axis": null, "dynamic": true}]})"));
  const auto report = run(*model);
  EXPECT_EQ(report.layers.size(), 2u);
  ASSERT_EQ(report.skipped.size(), 2u);
  EXPECT_EQ(report.skipped[0].reason, "recomputes the ranges of its weights at each call");
  EXPECT_EQ(report.skipped[1].path, "fc");
}

TEST(Gptq, FactorMatchesTheInverse) {
  constexpr std::int64_t n = 6;
  Tensor a = Tensor::empty({n, n}, DType::f64);
  fill_normal(a, 0, 1, 3);
  const auto x = a.to_vector<double>();
  std::vector<double> h(n * n, 0.0);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t k = 0; k < n; ++k)
        h[std::size_t(i * n + j)] += x[std::size_t(i * n + k)] * x[std::size_t(j * n + k)];
  const auto u = ptq::inverse_factor(h, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double product = 0;  // (U^T U h)[i][j]
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t l = 0; l < n; ++l)
          product += u[std::size_t(l * n + i)] * u[std::size_t(l * n + k)] * h[std::size_t(k * n + j)];
      EXPECT_NEAR(product, i == j ? 1.0 : 0.0, 1e-9);
      if (i > j) {
        EXPECT_EQ(u[std::size_t(i * n + j)], 0.0);
      }
    }
  EXPECT_THROW((void)ptq::inverse_factor({1, 2, 2, 1}, 2), NumericError);
}

TEST(Gptq, RejectsOptionsOutOfRangeAndModelsWithoutRanges) {
  auto model = trained("mlp");
  (void)quantize(*model, integers(4, 0), digit_shape());
  EXPECT_THROW((void)run(*model), ArgumentError);
  (void)calibrate(*model, *digit_batches("test"));
  EXPECT_THROW((void)run(*model, {.damping = 0}), ArgumentError);
  EXPECT_THROW((void)run(*model, {.samples = -1}), ArgumentError);
}

}  // namespace
}  // namespace fq::gptq_test
