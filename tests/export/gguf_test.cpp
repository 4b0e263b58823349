// GGUF files: written files are read back, and damaged files are rejected.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>

#include <gtest/gtest.h>

#include "export/temporary.h"
#include "fakequant/core/error.h"
#include "fakequant/core/tape.h"
#include "fakequant/export/gguf/import.h"
#include "fakequant/export/gguf/model.h"
#include "fakequant/export/transformers/import.h"
#include "fakequant/layers/model/graph.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/reference/ggml.h"

namespace fq::gguf_test {
namespace {

Tensor numbers(const Shape& shape) {
  Tensor out = Tensor::empty(shape);
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data<float>()[i] = static_cast<float>(i * 37 % 101 - 50) / 64;
  return out;
}

GgufModel small_model() {
  const Tensor matrix = numbers({3, 64});
  GgufModel model;
  model.metadata = {{"general.architecture", std::string("fakequant")},
                    {"a.flag", true},
                    {"a.count", std::uint32_t{7}},
                    {"a.share", 0.5f},
                    {"a.list", std::vector<std::string>{"x", "", "yz"}},
                    {"a.types", std::vector<std::int32_t>{1, -1}}};
  model.tensors = {{"q4", {3, 64}, GgufType::q4_0, ggml::pack_q4_0(ggml::quantize_q4_0(matrix))},
                   {"bias", {3}, GgufType::f32, numbers({3})},
                   {"half", {3, 5}, GgufType::f16, numbers({3, 5}).to(DType::f16)},
                   {"q8", {3, 64}, GgufType::q8_0, ggml::pack_q8_0(ggml::quantize_q8_0(matrix))}};
  return model;
}

class Gguf : public testing::Test {
 protected:
  std::string path_ = test::temporary("test.gguf");

  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    std::ostringstream out;
    out << file.rdbuf();
    return out.str();
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
};

TEST_F(Gguf, RoundTrips) {
  const GgufModel model = small_model();
  save_gguf(path_, model);
  const GgufModel back = load_gguf(path_);
  EXPECT_TRUE(back.metadata == model.metadata);
  ASSERT_EQ(back.tensors.size(), model.tensors.size());
  for (const auto& tensor : model.tensors) {
    const GgufTensor* found = back.tensor(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->type, tensor.type);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_TRUE(bitwise_equal(found->data, tensor.data)) << tensor.name;
  }
}

TEST_F(Gguf, RejectsTruncatedFiles) {
  save_gguf(path_, small_model());
  const std::string whole = bytes();
  for (std::size_t size = 0; size + 32 < whole.size(); size += 7) {
    write(whole.substr(0, size));
    EXPECT_THROW((void)load_gguf(path_), FileError) << size << " bytes";
  }
}

TEST_F(Gguf, SurvivesAnyChangedByte) {
  save_gguf(path_, small_model());
  const std::string whole = bytes();
  for (std::size_t at = 0; at < std::min<std::size_t>(whole.size(), 420); at += 3)
    for (const char value : {'\xff', '\x01'}) {
      std::string damaged = whole;
      damaged[at] = value;
      write(damaged);
      try {
        (void)load_gguf(path_);
      } catch (const FileError&) {
      }
    }
}

TEST_F(Gguf, DoesNotWriteUnsupportedValues) {
  GgufModel twice = small_model();
  twice.tensors.push_back(twice.tensors[1]);
  EXPECT_THROW(save_gguf(path_, twice), ArgumentError);
  GgufModel odd = small_model();
  odd.tensors[0].shape = {3, 40};
  EXPECT_THROW(save_gguf(path_, odd), ArgumentError);
  GgufModel named = small_model();
  named.tensors[1].name = std::string(64, 'n');
  EXPECT_THROW(save_gguf(path_, named), ArgumentError);
}

std::shared_ptr<Module> gpt(const char* options) {
  return build_model(ModelSpec::builtin("gpt", options), {16}, 11, {.dense = true});
}

TEST(GgufNetwork, GptUsesALlamaCppArchitecture) {
  auto model = gpt(R"({"layers": 1, "width": 32, "heads": 2, "context": 16})");
  quantize(*model, QuantConfig::preset("q4_0"), {1, 16});
  const GgufModel file = gguf_model(*model, {1, 16});
  EXPECT_EQ(std::get<std::string>(*file.value("general.architecture")), "gpt2");
  EXPECT_EQ(file.tensors.size(), 5U + 12U);
  EXPECT_EQ(file.tensor("blk.0.attn_qkv.weight")->shape, (Shape{96, 32}));
  EXPECT_EQ(file.tensor("blk.0.attn_qkv.weight")->type, GgufType::q4_0);
  EXPECT_EQ(file.tensor("position_embd.weight")->type, GgufType::f32);
  EXPECT_EQ(file.value("tokenizer.ggml.tokens"), nullptr);
  EXPECT_EQ(std::get<std::string>(*file.value("tokenizer.ggml.model")), "none");
  EXPECT_EQ(std::get<float>(*file.value("gpt2.attention.layer_norm_epsilon")), 1e-5F);
  EXPECT_THROW((void)gguf_model(*model, {1, 16}, {.vocabulary = {"a", "b"}}), ArgumentError);
}

TEST(GgufNetwork, WritesTheEpsilonOfTheNorms) {
  const ModelSpec spec =
      ModelSpec::builtin("gpt", R"({"layers": 1, "width": 32, "heads": 2, "context": 16})");
  auto text = nlohmann::ordered_json::parse(spec.text());
  for (auto& node : text["nodes"])
    if (node["type"] == "layer_norm") node["eps"] = 1e-6;
  auto model = build_model(ModelSpec::parse(text.dump()), {16}, 11, {.dense = true});
  const GgufModel file = gguf_model(*model, {1, 16});
  ASSERT_EQ(std::get<std::string>(*file.value("general.architecture")), "gpt2");
  EXPECT_EQ(std::get<float>(*file.value("gpt2.attention.layer_norm_epsilon")), 1e-6f);
}

TEST(GgufNetwork, RejectsProjectionsOfDifferentFormats) {
  for (const char* projection : {"q_proj", "k_proj"}) {
    auto model = gpt(R"({"layers": 1, "width": 32, "heads": 2, "context": 16})");
    quantize(*model, QuantConfig::preset("q4_0"), {1, 16});
    EXPECT_EQ(disable_quantizer(*model, "*" + std::string(projection) + ".weight_quantizer"), 1);
    EXPECT_THROW((void)gguf_model(*model, {1, 16}), ArgumentError) << projection;
  }
}

TEST(GgufNetwork, WritesATiedTableOnce) {
  auto model = gpt(R"({"layers": 1, "width": 32, "heads": 2, "context": 16, "tied": true})");
  EXPECT_EQ(gguf_model(*model, {1, 16}).tensors.size(), 4U + 12U);
  quantize(*model, QuantConfig::preset("q4_0"), {1, 16});
  const GgufModel file = gguf_model(*model, {1, 16});
  EXPECT_EQ(file.tensors.size(), 4U + 12U);
  EXPECT_EQ(file.tensor("output.weight"), nullptr);
  EXPECT_EQ(file.tensor("token_embd.weight")->type, GgufType::q4_0);
}

/// The network of transformers with its positions scaled by `parameters`, for that context.
std::shared_ptr<Graph> scaled_llama(const std::string& parameters) {
  const std::string from = std::string(FAKEQUANT_SOURCE_DIR) + "/tests/data/transformers/llama_scaled/",
                    folder = test::temporary("scaled_llama");
  std::filesystem::remove_all(folder);
  std::filesystem::copy(from, folder);
  auto config = nlohmann::ordered_json::parse(std::ifstream(from + "config.json"));
  config["rope_parameters"] = nlohmann::ordered_json::parse(parameters);
  std::ofstream(folder + "/config.json") << config;
  return import_transformers(folder, {.sample_shape = {12}}).build();
}

Tensor run_model(Graph& model) {
  const NoGrad no_grad;
  model.eval();
  Tensor ids = Tensor::empty({2, 12});
  for (std::int64_t i = 0; i < 24; ++i) ids.mutable_data<float>()[i] = static_cast<float>(i * 7 % 20);
  return model(Variable(ids)).tensor().to(Layout::row_major);
}

/// Numbers of the keys are f32.
TEST(GgufNetwork, ScaledRotaryPositionsUseLlamaCppKeys) {
  for (const char* parameters :
       {R"({"rope_type": "linear", "rope_theta": 100, "factor": 3})",
        R"({"rope_type": "yarn", "rope_theta": 100, "factor": 4, "original_max_position_embeddings": 6,
            "beta_fast": 4, "attention_factor": 1.5})"}) {
    const auto model = scaled_llama(parameters);
    const GgufModel file = gguf_model(*model, {1, 12});
    EXPECT_EQ(std::get<std::string>(*file.value("general.architecture")), "llama");
    const auto back = import_gguf(file, {.sample_shape = {12}}).build();
    const auto found = run_model(*back).to_vector<float>(), expected = run_model(*model).to_vector<float>();
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-5f) << parameters;
  }
  const auto yarn = gguf_model(
      *scaled_llama(R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 6})"), {1, 12});
  EXPECT_EQ(std::get<std::string>(*yarn.value("llama.rope.scaling.type")), "yarn");
  EXPECT_EQ(std::get<float>(*yarn.value("llama.rope.scaling.factor")), 4);
  EXPECT_EQ(std::get<std::uint32_t>(*yarn.value("llama.rope.scaling.original_context_length")), 6U);
  EXPECT_EQ(std::get<float>(*yarn.value("llama.rope.scaling.attn_factor")), 1);
}

/// The factor applies to wave lengths above 16, not below 2: theta 100 and heads of 8 have waves of 6.3,
/// 19.9, 62.8 and 198.7 tokens.
TEST(GgufNetwork, Llama3WritesAFactorTensorAndDynamicIsRejected) {
  const auto llama3 = gguf_model(
      *scaled_llama(R"({"rope_type": "llama3", "rope_theta": 100, "factor": 8, "low_freq_factor": 1,
                        "high_freq_factor": 8, "original_max_position_embeddings": 16})"),
      {1, 12});
  const GgufTensor* factors = llama3.tensor("rope_freqs.weight");
  ASSERT_NE(factors, nullptr);
  const auto values = factors->data.to_vector<float>();
  ASSERT_EQ(values.size(), 4U);
  const double share = (16 / (2 * std::numbers::pi) - 1) / 7;
  EXPECT_NEAR(values[0], 1 / ((1 - share) / 8 + share), 1e-5);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_FLOAT_EQ(values[i], 8) << i;
  EXPECT_THROW((void)import_gguf(llama3), FileError);
  const auto dynamic = scaled_llama(R"({"rope_type": "dynamic", "factor": 2})");
  EXPECT_THROW((void)gguf_model(*dynamic, {1, 12}), ArgumentError);
}

TEST(GgufNetwork, OtherNetworksKeepTheirNames) {
  auto rotary = gpt(R"({"layers": 1, "width": 32, "heads": 2, "context": 16, "rotary": true})");
  const GgufModel file = gguf_model(*rotary, {1, 16}, {.f16 = true});
  EXPECT_EQ(std::get<std::string>(*file.value("general.architecture")), "fakequant");
  ASSERT_NE(file.tensor("block1_fc1.weight"), nullptr);
  EXPECT_EQ(file.tensor("block1_fc1.weight")->type, GgufType::f16);
  EXPECT_EQ(file.tensor("block1_fc1.bias")->type, GgufType::f32);
}

}  // namespace
}  // namespace fq::gguf_test
