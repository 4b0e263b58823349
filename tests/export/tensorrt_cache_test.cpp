#include "fakequant/export/tensorrt_cache.h"

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "export/temporary.h"
#include "fakequant/core/error.h"
#include "layers/networks.h"

namespace fq::tensorrt_cache_test {
namespace {

std::string temporary_path(const std::string& name) { return test::temporary(name); }

std::shared_ptr<Graph> calibrated(const char* config) {
  auto model = test::residual_net();
  const Tensor x = test::random_tensor({4, 1, 8, 8}, -1, 1);
  quantize(*model, QuantConfig::parse(config), x.shape());
  test::observe(*model, x);
  return model;
}

std::string error_text(const char* config) {
  auto model = calibrated(config);
  try {
    (void)tensorrt_cache(*model);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return {};
}

TEST(TensorrtCacheFile, StoresTheActiveScalesBitwise) {
  for (const char* scale : {"free", "pow2"}) {
    auto model = calibrated(
        (std::string(R"({"preset": "int8", "target": "tensorrt", "scale": ")") + scale + "\"}").c_str());
    dynamic_cast<TensorQuantizer&>(model->at("fc.input_quantizer")).set_amax(Tensor::scalar(0));  // off
    const TensorrtCache cache = tensorrt_cache(*model);
    save_tensorrt_cache(temporary_path("whole"), cache);
    const TensorrtCache back = load_tensorrt_cache(temporary_path("whole"));
    EXPECT_EQ(back.header, "TRT-8601-EntropyCalibration2");
    EXPECT_EQ(back.scales, cache.scales);
    std::map<std::string, float> scales_by_name(back.scales.begin(), back.scales.end());
    std::size_t names = 0;
    for (const auto& [name, q, aliases] : named_quantizers(*model)) {
      if (name.find("weight") != std::string::npos || !q->enabled()) continue;
      auto paths = aliases;
      paths.push_back(name);
      for (const auto& path : paths)
        EXPECT_EQ(scales_by_name.at(path), static_cast<float>(q->scale().item())) << path;
      names += paths.size();
    }
    EXPECT_EQ(names, back.scales.size());
    EXPECT_FALSE(scales_by_name.contains("fc.input_quantizer"));
  }
}

TEST(TensorrtCacheFile, HeaderNamesVersionAndCalibrator) {
  EXPECT_EQ(tensorrt_cache_header(TensorrtCalibrator::min_max, 100300), "TRT-100300-MinMaxCalibration");
  EXPECT_THROW((void)tensorrt_cache_header(TensorrtCalibrator::entropy2, 0), ArgumentError);
}

TEST(TensorrtCacheFile, RejectsUnsupportedModels) {
  for (const auto& [config, named] : std::vector<std::pair<const char*, const char*>>{
           {R"({"preset": "int8", "target": "ort"})", "uint8"},
           {R"({"preset": "fp8", "target": "tensorrt"})", "e4m3"},
           {R"({"preset": "w4a4", "target": "tensorrt"})", "int4"},
           {R"({"preset": "w4a8", "target": "tensorrt"})", "quantizes weights"},
           {R"({"preset": "mxint8", "target": "tensorrt"})", "block"},
           {R"({"preset": "int8_weight_only"})", "no activation"},
           {R"({"preset": "int8", "target": "tensorrt", "rules": [
               {"pattern": "fc.input_quantizer", "dynamic": true}]})",
            "from each input"}}) {
    const std::string message = error_text(config);
    EXPECT_NE(message.find(named), std::string::npos) << config << ": " << message;
    EXPECT_NE(message.find("int8 activations"), std::string::npos) << config << ": " << message;
  }
  auto model = test::residual_net();
  quantize(*model, QuantConfig::parse(R"({"preset": "int8", "target": "tensorrt"})"), {1, 1, 8, 8});
  EXPECT_THROW((void)tensorrt_cache(*model), ArgumentError);
}

TensorrtCache load_text(const std::string& text) {
  std::ofstream(temporary_path("text"), std::ios::binary) << text;
  return load_tensorrt_cache(temporary_path("text"));
}

TEST(TensorrtCacheFile, AcceptsAnyHeaderAndNamesWithColons) {
  const TensorrtCache cache = load_text("1\r\na: b: 3f800000\r\n\r\nc: 00000000");
  EXPECT_EQ(cache.header, "1");
  EXPECT_EQ(cache.scales, (std::vector<std::pair<std::string, float>>{{"a: b", 1.0f}, {"c", 0.0f}}));
  EXPECT_TRUE(load_text("TRT-8601-EntropyCalibration2").scales.empty());
}

TEST(TensorrtCacheFile, NamesTheInvalidLine) {
  for (const char* text :
       {"", "\n", "h\nx", "h\nx:3f800000", "h\n: 3f800000", "h\nx: 3f80000", "h\nx: bf800000",
        "h\nx: 7f800000", "h\nx: 7fc00000", "h\nx: 3f800000\nx: 3f800000", "h\nx: 3f800000 "})
    EXPECT_THROW((void)load_text(text), FileError) << text;
  EXPECT_THROW((void)load_tensorrt_cache(temporary_path("nowhere")), FileError);
  EXPECT_THROW((void)load_tensorrt_cache("/"), FileError);
  try {
    (void)load_text("h\na: 3f800000\nb = 1\n");
    FAIL() << "no error";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("text:3: "), std::string::npos) << error.what();
  }
}

TEST(TensorrtCacheFile, RejectsInvalidLines) {
  EXPECT_THROW(save_tensorrt_cache(temporary_path("bad"), {"", {}}), ArgumentError);
  EXPECT_THROW(save_tensorrt_cache(temporary_path("bad"), {"h", {{"a\nb", 1.0f}}}), ArgumentError);
  EXPECT_THROW(save_tensorrt_cache(temporary_path("bad"), {"h", {{"a", -1.0f}}}), ArgumentError);
  EXPECT_THROW(save_tensorrt_cache("/no/such/folder/a.cache", {"h", {}}), FileError);
  EXPECT_FALSE(std::filesystem::exists(temporary_path("bad")));
}

TEST(TensorrtCacheFile, SurvivesChangedFiles) {
  const std::string whole = "TRT-8601-EntropyCalibration2\nconv1.input_quantizer: 3c010a14\nfc: 3f800000\n";
  std::mt19937 random(1);
  int rejected = 0, read = 0;
  for (int i = 0; i < 600; ++i) {
    std::string text = whole.substr(0, i % 3 == 0 ? random() % whole.size() : whole.size());
    for (unsigned changes = random() % 4; changes > 0 && !text.empty(); --changes)
      text[random() % text.size()] = static_cast<char>(random());
    try {
      const TensorrtCache cache = load_text(text);
      EXPECT_EQ(text.find(cache.header), 0u);
      for (const auto& [name, scale] : cache.scales) {
        const auto at = text.find(name + ": ");
        ASSERT_NE(at, std::string::npos) << name;
        EXPECT_EQ(std::stoul(text.substr(at + name.size() + 2, 8), nullptr, 16),
                  std::bit_cast<std::uint32_t>(scale))
            << text;
        EXPECT_TRUE(scale >= 0 && std::isfinite(scale)) << scale;
      }
      ++read;
    } catch (const FileError&) {
      EXPECT_NE(text, whole);
      ++rejected;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(rejected, 100);
}

}  // namespace
}  // namespace fq::tensorrt_cache_test
