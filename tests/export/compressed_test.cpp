// Networks whose weights are codes export to the files that float weights give.

#include "layers/compressed.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/safetensors/modelopt.h"
#include "fakequant/export/scales.h"

namespace fq::compressed_test {
namespace {

using namespace test;

const Shape kRow{2, 64};

std::shared_ptr<Graph> matrices(const std::string& preset, bool weights_only) {
  const RandomScope seed(7, 0);
  std::vector<GraphNode> nodes;
  nodes.push_back({"fc1", std::make_shared<Linear>(64, 32), {"input"}});
  nodes.push_back({"relu", make_relu(), {"fc1"}});
  nodes.push_back({"fc2", std::make_shared<Linear>(32, 6), {"relu"}});
  auto model = std::make_shared<Graph>(std::move(nodes));
  QuantConfig config = QuantConfig::preset(preset);
  config.target = Target::tensorrt;
  quantize(*model, config, kRow);
  if (weights_only) disable_quantizer(*model, "*input_quantizer");
  observe(*model, random_tensor(kRow, -1, 1));
  return model;
}

void expect_same(const OnnxModel& a, const OnnxModel& b, const std::string& what) {
  EXPECT_EQ(a.opset, b.opset) << what;
  ASSERT_EQ(a.nodes.size(), b.nodes.size()) << what;
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    EXPECT_EQ(a.nodes[i].op, b.nodes[i].op) << what;
    EXPECT_EQ(a.nodes[i].name, b.nodes[i].name) << what;
    EXPECT_EQ(a.nodes[i].inputs, b.nodes[i].inputs) << what;
    EXPECT_EQ(a.nodes[i].outputs, b.nodes[i].outputs) << what;
  }
  ASSERT_EQ(a.initializers.size(), b.initializers.size()) << what;
  for (std::size_t i = 0; i < a.initializers.size(); ++i) {
    EXPECT_EQ(a.initializers[i].name, b.initializers[i].name) << what;
    EXPECT_TRUE(bitwise_equal(a.initializers[i].value, b.initializers[i].value))
        << what << ' ' << a.initializers[i].name;
  }
}

TEST(Compressed, ExportsTheSameOnnxGraph) {
  for (const std::string preset :
       {"int8", "w4a8", "int4_blockwise", "fp8", "nvfp4", "mxfp4", "mxfp6", "mxfp8"})
    for (const bool emulate : {false, true}) {
      auto model = matrices(preset, preset.starts_with("mx") || preset == "nvfp4");
      const OnnxExportOptions options{.target = Target::tensorrt, .emulate = emulate};
      const OnnxModel before = export_onnx(*model, kRow, options);
      compress(*model);
      expect_same(before, export_onnx(*model, kRow, options), preset);
    }
}

TEST(Compressed, ExportsTheSameModelOptTensors) {
  for (const std::string preset : {"int8", "int8_weight_only", "fp8", "nvfp4", "mxfp8"}) {
    auto model = matrices(preset, false);
    const NamedTensors before = modelopt_tensors(*model);
    compress(*model);
    const NamedTensors after = modelopt_tensors(*model);
    ASSERT_EQ(before.size(), after.size()) << preset;
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(before[i].first, after[i].first) << preset;
      EXPECT_TRUE(bitwise_equal(before[i].second, after[i].second)) << preset << ' ' << before[i].first;
    }
  }
}

TEST(Compressed, ExportsTheSameScales) {
  for (const std::string preset : {"int8", "int4_blockwise", "nvfp4"}) {
    auto model = matrices(preset, false);
    const auto before = scales_json(*model);
    compress(*model);
    EXPECT_EQ(scales_json(*model), before) << preset;
  }
}

TEST(Compressed, OmitsClippedCountsOfCodes) {
  auto model = matrices("int8", false);
  compress(*model);
  ClipCounter counter(*model);
  {
    const RecordScope scope(counter);
    const NoGrad no_grad;
    (void)(*model)(Variable(random_tensor(kRow, -1, 1))).tensor();
  }
  EXPECT_TRUE(counter.counts().contains("fc1.input_quantizer"));
  EXPECT_FALSE(counter.counts().contains("fc1.weight_quantizer"));
}

TEST(Compressed, RejectsImportedRanges) {
  auto model = matrices("int8", false);
  compress(*model);
  EXPECT_THROW((void)import_ranges(*model, "nothing.safetensors"), ArgumentError);
}

}  // namespace
}  // namespace fq::compressed_test
