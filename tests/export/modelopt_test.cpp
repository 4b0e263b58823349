#include "fakequant/export/safetensors/modelopt.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "export/temporary.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "layers/networks.h"

namespace fq::modelopt_test {
namespace {

using nlohmann::json;

/// Two matrices of 32 x 128 and 6 x 32, with a ReLU between.
std::shared_ptr<Graph> matrices() {
  std::vector<GraphNode> nodes;
  nodes.push_back({"fc1", std::make_shared<Linear>(128, 32), {"input"}});
  nodes.push_back({"relu", make_relu(), {"fc1"}});
  nodes.push_back({"fc2", std::make_shared<Linear>(32, 6, false), {"relu"}});
  return std::make_shared<Graph>(std::move(nodes));
}

std::shared_ptr<Graph> calibrated(const std::string& config, std::shared_ptr<Graph> model = matrices(),
                                  const Shape& shape = {4, 128}) {
  const Tensor x = test::random_tensor(shape, -1, 1);
  quantize(*model, QuantConfig::parse(config), x.shape());
  test::observe(*model, x);
  return model;
}

const std::map<std::string, std::string>& configs() {
  static const std::map<std::string, std::string> table{
      {"W8A8_SQ_PER_CHANNEL", R"({"preset": "int8", "target": "tensorrt"})"},
      {"W8A16", R"({"preset": "int8_weight_only"})"},
      {"FP8", R"({"preset": "fp8"})"},
      {"FP8_PER_CHANNEL_PER_TOKEN", R"({"preset": "fp8_per_channel_per_token"})"},
      {"NVFP4", R"({"preset": "nvfp4"})"},
      {"W4A16_AWQ",
       R"({"rules": [{"pattern": "*weight_quantizer", "num_bits": 4, "block_sizes": {"-1": 32}}]})"},
      {"MXFP8", R"({"preset": "mxfp8"})"}};
  return table;
}

std::map<std::string, Tensor> index_by_name(const NamedTensors& tensors) {
  return {tensors.begin(), tensors.end()};
}

/// The values of a weight, computed from the bytes of the file.
Tensor dequantized(const std::string& algorithm, const std::map<std::string, Tensor>& t,
                   const std::string& path, const Shape& shape) {
  const Tensor& codes = t.at(path + ".weight");
  const Tensor& scales = t.at(path + ".weight_scale");
  const auto* bytes = static_cast<const std::uint8_t*>(codes.raw());
  const auto* scale_bytes = static_cast<const std::uint8_t*>(scales.raw());
  const std::int64_t blocks = scales.numel() < shape[0] ? 0 : scales.numel() / shape[0];
  Tensor out = Tensor::empty(shape);
  for (std::int64_t r = 0; r < shape[0]; ++r)
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      const std::int64_t i = r * shape[1] + c, s = blocks == 0 ? 0 : r * blocks + c * blocks / shape[1];
      float q = 0, scale = scales.dtype() == DType::f32 ? scales.data<float>()[s] : 0;
      if (algorithm == "NVFP4") {
        q = Minifloat::of({2, 1}).decode(bytes[i / 2] >> (i % 2 * 4) & 15);
        scale =
            Minifloat::of({4, 3}).decode(scale_bytes[s]) * t.at(path + ".weight_scale_2").data<float>()[0];
      } else if (algorithm == "W4A16_AWQ") {
        const int nibble = bytes[r / 2 * shape[1] + c] >> (r % 2 * 4) & 15;
        q = static_cast<float>((nibble ^ 8) - 8);
      } else if (codes.dtype() == DType::f8_e4m3) {
        q = Minifloat::of({4, 3}).decode(bytes[i]);
        if (algorithm == "MXFP8") scale = decode_e8m0(scale_bytes[s]);
      } else {
        q = codes.data<std::int8_t>()[i];
      }
      out.mutable_data<float>()[i] = q * scale;
    }
  return out;
}

Tensor own_values(Module& model, const std::string& path) {
  const NoGrad no_grad;
  auto& layer = dynamic_cast<QuantModule&>(model.at(path));
  return layer.weight_quantizer()->weight(layer.quantized_weight()).tensor();
}

TEST(Modelopt, WeightsMatchTheQuantizerBitwise) {
  for (const auto& [algorithm, config] : configs()) {
    auto model = calibrated(config);
    const auto tensors = index_by_name(modelopt_tensors(*model));
    for (const auto& [path, shape] :
         std::map<std::string, Shape>{{"fc1", Shape{32, 128}}, {"fc2", Shape{6, 32}}})
      EXPECT_TRUE(bitwise_equal(dequantized(algorithm, tensors, path, shape), own_values(*model, path)))
          << algorithm << " " << path;
    EXPECT_TRUE(
        bitwise_equal(tensors.at("fc1.bias"), dynamic_cast<QuantLinear&>(model->at("fc1")).bias().tensor()));
    EXPECT_FALSE(tensors.contains("fc2.bias"));
    EXPECT_EQ(modelopt_config(*model)["quantization"]["quant_algo"], algorithm);
  }
}

TEST(Modelopt, WritesKeysAndShapesOfEachFormat) {
  const std::map<std::string, std::vector<std::string>> expected_keys{
      {"W8A8_SQ_PER_CHANNEL",
       {"fc1.bias f32 [32]", "fc1.bias_code i32 [32]", "fc1.input_scale f32 []", "fc1.weight i8 [32, 128]",
        "fc1.weight_scale f32 [32]"}},
      {"W8A16", {"fc1.bias f32 [32]", "fc1.weight i8 [32, 128]", "fc1.weight_scale f32 [32]"}},
      {"FP8",
       {"fc1.bias f32 [32]", "fc1.input_scale f32 []", "fc1.weight f8_e4m3 [32, 128]",
        "fc1.weight_scale f32 []"}},
      {"FP8_PER_CHANNEL_PER_TOKEN",
       {"fc1.bias f32 [32]", "fc1.weight f8_e4m3 [32, 128]", "fc1.weight_scale f32 [32]"}},
      {"NVFP4",
       {"fc1.bias f32 [32]", "fc1.input_scale f32 []", "fc1.weight u8 [32, 64]",
        "fc1.weight_scale f8_e4m3 [32, 8]", "fc1.weight_scale_2 f32 []"}},
      {"W4A16_AWQ", {"fc1.bias f32 [32]", "fc1.weight u8 [16, 128]", "fc1.weight_scale f32 [32, 4]"}},
      {"MXFP8", {"fc1.bias f32 [32]", "fc1.weight f8_e4m3 [32, 128]", "fc1.weight_scale u8 [32, 4]"}}};
  for (const auto& [algorithm, config] : configs()) {
    std::vector<std::string> found;
    for (const auto& [name, tensor] : index_by_name(modelopt_tensors(*calibrated(config))))
      if (name.starts_with("fc1"))
        found.push_back(name + " " + std::string(fq::name(tensor.dtype())) + " " + to_string(tensor.shape()));
    EXPECT_EQ(found, expected_keys.at(algorithm)) << algorithm;
  }
}

TEST(Modelopt, WritesTheActiveInputScales) {
  auto int8 = calibrated(configs().at("W8A8_SQ_PER_CHANNEL"));
  auto& q = dynamic_cast<TensorQuantizer&>(int8->at("fc1.input_quantizer"));
  q.update([](QuantParams& s) { s.pre_quant_scale = Tensor::full({128}, 0.5); });
  const auto tensors = index_by_name(modelopt_tensors(*int8));
  EXPECT_EQ(tensors.at("fc1.input_scale").item(), q.scale().item());
  EXPECT_EQ(tensors.at("fc1.pre_quant_scale").shape(), (Shape{128}));
  auto nvfp4 = calibrated(configs().at("NVFP4"));
  const float amax =
      static_cast<float>(dynamic_cast<TensorQuantizer&>(nvfp4->at("fc1.input_quantizer")).amax().item());
  EXPECT_EQ(index_by_name(modelopt_tensors(*nvfp4)).at("fc1.input_scale").item(), amax / 2688.0f);
}

TEST(Modelopt, WritesConvolutionsSharedInputsAndOuterScales) {
  auto model = calibrated(R"({"preset": "int8", "target": "tensorrt", "rules": [
      {"pattern": "fc.output_quantizer", "enable": true, "num_bits": 8}]})",
                          test::residual_net(), {4, 1, 8, 8});
  const auto tensors = index_by_name(modelopt_tensors(*model));
  EXPECT_EQ(tensors.at("conv1.weight").shape(), (Shape{8, 1, 3, 3}));
  EXPECT_EQ(tensors.at("conv1.weight_scale").shape(), (Shape{8}));
  EXPECT_TRUE(tensors.contains("add.input_scale"));
  EXPECT_TRUE(tensors.contains("add.input_scale_1"));
  EXPECT_TRUE(tensors.contains("gap.input_scale"));
  EXPECT_TRUE(tensors.contains("fc.output_scale"));
  EXPECT_EQ(tensors.at("conv2.input_scale").item(), tensors.at("add.input_scale_1").item());
  EXPECT_TRUE(tensors.contains("bn1.running_mean"));
}

TEST(Modelopt, OmitsLearnedRangesFromTheParameters) {
  auto model = calibrated(configs().at("W8A8_SQ_PER_CHANNEL"));
  learn_ranges(*model);
  for (const auto& [name, tensor] : modelopt_tensors(*model))
    EXPECT_EQ(name.find("amax"), std::string::npos) << name;
}

TEST(Modelopt, MixedModelsNameEachLayer) {
  auto model = calibrated(R"({"preset": "fp8", "rules": [{"pattern": "fc2.*", "enable": false},
      {"pattern": "fc2.weight_quantizer", "enable": true, "num_bits": 4, "block_sizes": {"-1": 32}}]})");
  const json mixed = modelopt_config(*model, "1.2.3");
  EXPECT_EQ(mixed["producer"], json::parse(R"({"name": "fakequant", "version": "1.2.3"})"));
  EXPECT_EQ(mixed["quantization"]["quant_algo"], "MIXED_PRECISION");
  EXPECT_EQ(mixed["quantization"]["quantized_layers"], json::parse(R"({"fc1": {"quant_algo": "FP8"},
      "fc2": {"quant_algo": "W4A16_AWQ", "group_size": 32, "has_zero_point": false, "pre_quant_scale": false}})"));
  auto part = calibrated(R"({"preset": "nvfp4", "rules": [{"pattern": "fc2.*", "enable": false}]})");
  const json one = modelopt_config(*part)["quantization"];
  EXPECT_EQ(one, json::parse(R"({"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": null,
      "exclude_modules": ["fc2"]})"));
  EXPECT_EQ(index_by_name(modelopt_tensors(*part)).at("fc2.weight").dtype(), DType::f32);
}

std::string error_text(Module& model) {
  try {
    (void)modelopt_tensors(model);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return {};
}

TEST(Modelopt, RejectsFormatsWithoutNames) {
  for (
      const auto& [config, expected] : std::vector<std::pair<std::string, std::string>>{
          {R"({"preset": "int8", "target": "ort"})", "uint8"},
          {R"({"preset": "w4a4", "target": "tensorrt"})", "int4"},
          {R"({"preset": "mxfp4"})", "e2m1"},
          {R"({"preset": "fp8_2d_blockwise"})", "float"},
          {R"({"preset": "int8", "target": "tensorrt", "rules": [{"pattern": "fc1.input_quantizer", "axis": -1}]})",
           "axis -1"},
          {R"({"preset": "int8", "target": "tensorrt", "rules": [{"pattern": "fc1.weight_quantizer", "enable": false}]})",
           "weight to float"},
          {R"({"rules": [{"pattern": "*weight_quantizer", "num_bits": 4, "block_sizes": {"-1": 24}}]})",
           "blocks of 24"},
          {R"({"rules": [{"pattern": "*weight_quantizer", "sequence":
               [{"num_bits": 4, "block_sizes": {"-1": 4}}, {"num_bits": [4, 3]}]}]})",
           "2 quantizers"},
          {R"({"preset": "int8", "arithmetic": "reference", "target": "none"})", "int8"}}) {
    auto model = calibrated(config);
    const std::string message = error_text(*model);
    EXPECT_NE(message.find(expected), std::string::npos) << config << ": " << message;
    EXPECT_NE(message.find("fp8_per_channel_per_token"), std::string::npos) << config << ": " << message;
  }
  auto convolutions = calibrated(R"({"preset": "nvfp4"})", test::residual_net(), {4, 1, 8, 8});
  EXPECT_NE(error_text(*convolutions).find("'conv1' has the weight [8, 1, 3, 3]"), std::string::npos);
  auto floats = matrices();
  EXPECT_THROW((void)modelopt_config(*floats), ArgumentError);
  quantize(*floats, QuantConfig::parse(configs().at("W8A8_SQ_PER_CHANNEL")), {1, 128});
  EXPECT_NE(error_text(*floats).find("has no amax"), std::string::npos);
}

/// tests/scripts/safetensors_test.py runs this test with its own folder and reads the written files.
TEST(Modelopt, WritesACheckpointAndItsConfig) {
  const char* given = std::getenv("FAKEQUANT_SAFETENSORS_FOLDER");
  const std::filesystem::path folder = given != nullptr ? given : test::temporary("modelopt");
  for (const auto& [algorithm, config] : configs()) {
    const auto place = folder / algorithm;
    std::filesystem::create_directories(place);
    auto model = calibrated(config);
    save_modelopt((place / "model.safetensors").string(), *model, "0.0.0");
    StateDict values;
    for (const char* path : {"fc1", "fc2"}) values.set(path, own_values(*model, path));
    save_state((place / "values.h5").string(), values, "values");
    EXPECT_EQ(SafetensorsFile((place / "model.safetensors").string()).entries().size(),
              modelopt_tensors(*model).size());
    EXPECT_EQ(json::parse(read_file((place / "hf_quant_config.json").string())),
              modelopt_config(*model, "0.0.0"));
  }
}

}  // namespace
}  // namespace fq::modelopt_test
