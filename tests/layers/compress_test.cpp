// Weights kept as packed codes: the same bits from less memory.

#include <thread>

#include <gtest/gtest.h>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/device.h"
#include "fakequant/core/quantized.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"
#include "layers/compressed.h"

namespace fq::compress_test {
namespace {

using namespace test;

void expect_same(const std::vector<QuantizedTensor>& a, const std::vector<QuantizedTensor>& b,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(bitwise_equal(a[i].codes, b[i].codes)) << what << " codes of " << i;
    EXPECT_TRUE(bitwise_equal(a[i].grid.scale, b[i].grid.scale)) << what << " scales of " << i;
    EXPECT_TRUE(bitwise_equal(dequantize(a[i]), dequantize(b[i]))) << what << " values of " << i;
    EXPECT_EQ(a[i].grid.granularity, b[i].grid.granularity) << what;
    EXPECT_EQ(a[i].grid.unit, b[i].grid.unit) << what;
    EXPECT_EQ(a[i].grid.scale_bits, b[i].grid.scale_bits) << what;
    EXPECT_EQ(a[i].grid.name, b[i].grid.name) << what;
  }
}

void expect_compresses(const QuantConfig& config, const std::string& what) {
  auto model = quantized(config);
  const Tensor before = logits(*model);
  const auto codes = all_codes(*model);
  const std::int64_t floats = parameter_bytes(*model);
  const auto report = compress(*model);
  EXPECT_TRUE(bitwise_equal(logits(*model), before)) << what;
  expect_same(all_codes(*model), codes, what);
  ASSERT_EQ(report.size(), 4u) << what;
  EXPECT_EQ(report[0].name, "conv.weight");
  std::int64_t saved = 0;
  for (const auto& weight : report) {
    EXPECT_EQ(weight.code_bytes, byte_size(packed_dtype(weight.format), weight.elements)) << what;
    saved += 4 * weight.elements - weight.code_bytes;
  }
  EXPECT_EQ(parameter_bytes(*model), floats - saved) << what;
  EXPECT_TRUE(is_compressed(*model));
}

TEST(Compress, EveryPresetIsBitwiseUnchangedAndSmaller) {
  for (const auto& preset : QuantConfig::preset_names())
    if (const auto config = QuantConfig::preset(preset); config.target == Target::ort)
      expect_compresses(config, preset);
}

TEST(Compress, SupportsOtherScalesSequencesAndLearnedRanges) {
  const auto with = [](const std::string& fields) {
    return QuantConfig::parse(R"({"preset": "w4a4", "rules": [{"pattern": "*weight_quantizer", )" + fields +
                              "}]}");
  };
  QuantConfig pow2 = QuantConfig::preset("int8");
  pow2.pow2 = true;
  expect_compresses(pow2, "pow2");
  expect_compresses(with(R"("num_bits": [2, 1], "block_sizes": {"-1": 16, "scale_bits": [4, 3]})"),
                    "static nvfp4");
  expect_compresses(with(R"("num_bits": 8, "block_sizes": {"-1": 32, "scale_bits": [8, 0]})"),
                    "static mxint8");
  expect_compresses(
      with(R"("num_bits": [5, 2], "block_sizes": {"-1": 32, "type": "dynamic", "scale_bits": [8, 0]})"),
      "mx of e5m2");
  expect_compresses(with(R"("num_bits": 12)"), "int12");
  expect_compresses(with(R"("dynamic": true)"), "dynamic, per channel");
  expect_compresses(with(R"("unsigned": true)"), "unsigned");
  expect_compresses(with(R"("learn_amax": true)"), "learned");
  expect_compresses(with(R"("sequence": [{"num_bits": 4, "block_sizes": {"-1": 16}}, {"num_bits": [4, 3]}])"),
                    "sequence");
}

TEST(Compress, ReportsBytesByFormat) {
  const auto preset_bytes = [](const std::string& preset) {
    auto model = quantized(preset);
    compress(*model);
    return weight(*model, "fc1").nbytes();
  };
  constexpr std::int64_t elements = 90 * 37;
  EXPECT_EQ(preset_bytes("int8"), elements);
  EXPECT_EQ(preset_bytes("int4_blockwise"), elements / 2);
  EXPECT_EQ(preset_bytes("w3a3"), elements / 2);
  EXPECT_EQ(preset_bytes("w2a2"), (elements + 3) / 4);
  EXPECT_EQ(preset_bytes("fp8"), elements);
  EXPECT_EQ(preset_bytes("nvfp4"), elements / 2);
  EXPECT_EQ(preset_bytes("mxfp6"), elements);
}

TEST(Compress, KeepsBlockScalesInTheirType) {
  auto model = quantized("nvfp4");
  const auto report = compress(*model);
  const auto& scales = layer(*model, "fc1").weight_quantizer()->weight_codes().scales();
  EXPECT_EQ(scales.values.dtype(), DType::f8_e4m3);
  EXPECT_EQ(scales.values.numel(), 37 * 6);
  EXPECT_EQ(report[2].scale_bytes, 37 * 6 + 4);
  model = quantized("mxfp8");
  EXPECT_EQ(compress(*model)[2].scale_bytes, 37 * 3);
  EXPECT_EQ(layer(*model, "fc1").weight_quantizer()->weight_codes().scales().values.dtype(), DType::f8_e8m0);
  model = quantized("int8");
  EXPECT_EQ(compress(*model)[2].scale_bytes, 4 * 37);
  EXPECT_FALSE(layer(*model, "fc1").weight_quantizer()->weight_codes().scales().defined());
}

TEST(Compress, FreesTheFloatsAndKeepsNoUnpackedCopy) {
  auto model = std::make_shared<Sequential>();
  model->add("fc", std::make_shared<Linear>(1024, 512));
  quantize(*model, QuantConfig::preset("w4a8"), {1, 1024});
  for (auto& q : named_quantizers(*model)) q.quantizer->set_amax(Tensor::scalar(1));
  const NoGrad no_grad;
  model->eval();
  const auto evaluate = [&] { (void)(*model)(Variable(random_tensor({2, 1024}, -1, 1))).tensor(); };
  constexpr std::int64_t elements = 1024 * 512, floats = 4 * elements, packed = elements / 2;
  const std::int64_t fresh = memory_stats().in_use;
  evaluate();
  EXPECT_GE(memory_stats().in_use, fresh + elements);  // the codes of a float weight stay, one a byte
  compress(*model);
  constexpr std::int64_t small = 16 << 10;  // scales, and buffers that are allocated once
  EXPECT_LE(memory_stats().in_use, fresh - floats + packed + small);
  evaluate();
  EXPECT_LE(memory_stats().in_use, fresh - floats + packed + small);
}

TEST(Compress, GraphMatchesFloatWeights) {
  for (const std::string preset : {"int8", "w4a8", "nvfp4", "mxfp4"}) {
    auto model = quantized(preset);
    const TraceGraph before = trace(*model, kImage);
    compress(*model);
    const TraceGraph after = trace(*model, kImage);
    ASSERT_EQ(before.nodes.size(), after.nodes.size()) << preset;
    for (std::size_t i = 0; i < before.nodes.size(); ++i) {
      EXPECT_EQ(before.nodes[i].op, after.nodes[i].op) << preset;
      EXPECT_EQ(before.nodes[i].path, after.nodes[i].path) << preset;
      EXPECT_EQ(before.nodes[i].inputs, after.nodes[i].inputs) << preset;
    }
    for (std::size_t i = 0; i < before.values.size(); ++i)
      EXPECT_EQ(before.values[i].name, after.values[i].name) << preset;
    EXPECT_EQ(summary(*model, kImage).parameters, summary(*float_network(), kImage).parameters);
    EXPECT_TRUE(holds_codes(layer(*model, "fc1").quantized_weight()));
  }
}

TEST(Compress, IsIdempotent) {
  auto model = quantized("w4a4");
  const auto first = compress(*model);
  const Tensor codes = weight(*model, "conv");
  const auto second = compress(*model);
  EXPECT_EQ(second.size(), first.size());
  EXPECT_TRUE(weight(*model, "conv").storage().shares(codes.storage()));
}

TEST(Compress, LayersWithDisabledQuantizersStayFloat) {
  auto model = quantized("int8");
  disable_quantizer(*model, "fc*.weight_quantizer");
  const Tensor before = logits(*model);
  EXPECT_EQ(compress(*model).size(), 2u);
  EXPECT_EQ(weight(*model, "fc1").dtype(), DType::f32);
  EXPECT_TRUE(bitwise_equal(logits(*model), before));
}

TEST(Compress, DisabledQuantizerReturnsTheCodeValues) {
  for (const std::string preset : {"int8", "nvfp4"}) {
    auto model = quantized(preset);
    compress(*model);
    disable_quantizer(*model, "*");
    const Tensor values = logits(*model);
    decompress(*model);
    EXPECT_TRUE(bitwise_equal(logits(*model), values)) << preset;
  }
}

TEST(Compress, FoldsLikeFloatWeights) {
  for (const std::string preset : {"w4a4", "nvfp4"}) {
    auto model = quantized(preset), other = quantized(preset);
    compress(*model);
    fold_weight(*model);
    fold_weight(*other);
    EXPECT_FALSE(is_compressed(*model));
    EXPECT_TRUE(bitwise_equal(logits(*model), logits(*other))) << preset;
  }
}

TEST(Compress, DecompressedStaticGridsKeepTheCodes) {
  for (const std::string preset : {"int8", "w2a2", "int4_blockwise", "fp8", "fp8_2d_blockwise"}) {
    auto model = quantized(preset);
    const Tensor before = logits(*model);
    const auto codes = all_codes(*model);
    compress(*model);
    decompress(*model);
    EXPECT_FALSE(is_compressed(*model)) << preset;
    EXPECT_TRUE(layer(*model, "fc1").quantized_weight().requires_grad());
    expect_same(all_codes(*model), codes, preset);
    EXPECT_TRUE(bitwise_equal(logits(*model), before)) << preset;
  }
}

TEST(Compress, DecompressedWeightsAreTheCodeValues) {
  for (const std::string preset : {"nvfp4", "mxfp4"}) {
    auto model = quantized(preset);
    const Tensor values = dequantize(weight_codes(layer(*model, "fc1")));
    compress(*model);
    decompress(*model);
    EXPECT_TRUE(bitwise_equal(weight(*model, "fc1"), values)) << preset;
    EXPECT_FALSE(layer(*model, "fc1").weight_quantizer()->weight_codes().scales().defined());
  }
}

TEST(Compress, KeepsGradientsOfFloatParameters) {
  const auto gradients = [](Module& model) {
    model.zero_grad();
    Variable x(random_tensor({4, 1, 8, 8}, -1, 1, 3), true);
    model(x).as_float().backward(Tensor::full({4, 10}, 1));
    std::vector<Tensor> out{x.grad()};
    for (const auto& [name, parameter] : model.named_parameters())
      if (name.ends_with("bias")) out.push_back(parameter.grad());
    return out;
  };
  auto model = quantized("w4a8");
  const auto before = gradients(*model);
  compress(*model);
  const auto after = gradients(*model);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(bitwise_equal(before[i], after[i])) << i;
  EXPECT_FALSE(layer(*model, "fc1").quantized_weight().grad().defined());
}

TEST(ThreadsCompress, ConcurrentReadersGetTheSameBits) {
  auto model = quantized("nvfp4");
  compress(*model);
  const auto run = [&] {
    detail::set_threads(1);
    return logits(*model).to_vector<float>();
  };
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = run(); });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, run());
}

}  // namespace
}  // namespace fq::compress_test
