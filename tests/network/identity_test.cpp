#include "fakequant/network/identity.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/network/network.h"
#include "fakequant/train/loop/checkpoint.h"
#include "thrown.h"

namespace fq::identity_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// An identity with every key, as the command writes it.
const char* const kWhole =
    R"({"class_names":["a","b"],"classes":2,"dense":true,"folded":true,"inputs":{"columns":["x","y"],)"
    R"("mean":[0.5],"scale":0.0625,"std":[0.25]},"model":{"name":"net","nodes":[{)"
    R"("name":"fc","options":{"bias":true,"out_features":"classes"},"type":"linear"}]},)"
    R"("quantization":{"preset":"int8","rules":[{"enable":false,"pattern":"fc.*"}]},"sample_shape":[2],)"
    R"("task":{"loss":"cross_entropy,ignore=1","metrics":"accuracy"},"tokenizer":"{}"})";

std::string problem(const json& identity) {
  return test::error_message([&] { return Identity::from_json(identity); });
}

TEST(Identity, TextOfACompleteConfigurationIsUnchanged) {
  EXPECT_EQ(Identity::from_json(json::parse(kWhole)).to_json().dump(), kWhole);
}

TEST(Identity, OmitsOptionalKeys) {
  json least = json::parse(kWhole);
  for (const char* key : {"class_names", "dense", "inputs", "task", "tokenizer"}) least.erase(key);
  least["quantization"] = nullptr;
  EXPECT_EQ(Identity::from_json(least).to_json(), least);
}

TEST(Identity, ReadsEveryOldCheckpointUnchanged) {
  std::size_t count = 0;
  for (const char* folder : {"/tests/data", "/tests/fuzz/corpus/checkpoint"})
    for (const auto& file : std::filesystem::directory_iterator(FAKEQUANT_SOURCE_DIR + std::string(folder))) {
      const std::string path = file.path().string();
      if (!path.ends_with(".h5") || path.find("refused") != std::string::npos) continue;
      const StateDict state = load_checkpoint(path);
      EXPECT_EQ(load_identity(state, path).to_json(), state.attribute("model")) << path;
      ++count;
    }
  EXPECT_GE(count, 6U);
}

TEST(Identity, NamesUnknownKeys) {
  const json whole = json::parse(kWhole);
  for (const char* place : {"", "/inputs", "/task", "/model", "/model/nodes/0"}) {
    json changed = whole;
    changed[json::json_pointer(place)]["sclae"] = 1;
    EXPECT_THAT(problem(changed), HasSubstr("unknown key 'sclae'")) << place;
  }
}

TEST(Identity, NamesMissingKeys) {
  for (const char* key : {"model", "sample_shape", "classes", "folded", "quantization"}) {
    json changed = json::parse(kWhole);
    changed.erase(key);
    EXPECT_THAT(problem(changed), HasSubstr(std::string("[identity] ") + key)) << key;
  }
}

TEST(Identity, RejectsWrongTypes) {
  const json whole = json::parse(kWhole);
  for (const auto& [key, value] : whole.items())
    for (const json& other : {json(1.5), json("x"), json({{"a", 1}}), json({json::array({1})})}) {
      if (other.type() == value.type()) continue;
      if (key == "model" && other.is_string()) continue;  // a text is no model, which ModelSpec says
      if (key == "quantization") continue;                // `config` reads it
      json changed = whole;
      changed[key] = other;
      EXPECT_NE(problem(changed), "") << key << " is " << other;
    }
}

TEST(Identity, ConfigMatchesTheText) {
  Identity identity = Identity::from_json(json::parse(kWhole));
  EXPECT_EQ(identity.preset(), "int8");
  EXPECT_EQ(identity.config().rules.back().pattern, "fc.*");
  identity.quantization.clear();
  EXPECT_EQ(identity.preset(), "");
  EXPECT_THAT(test::error_message([&] { return identity.config(); }), HasSubstr("[identity] quantization"));
}

TEST(Identity, RulesKeepTheirOrder) {
  Identity identity = Identity::from_json(json::parse(kWhole));
  identity.set_quantization(
      nlohmann::ordered_json::parse(R"({"preset": "int8", "rules": {"z*": {"num_bits": 4}, "a*": {}}})"));
  const auto read = Identity::from_json(identity.to_json()).config();
  EXPECT_EQ(read.rules.at(read.rules.size() - 2).pattern, "z*");
  EXPECT_EQ(read.rules.back().pattern, "a*");
}

TEST(NetworkCreate, ListOutputsAreClasses) {
  const auto spec = ModelSpec::parse(R"({"nodes": [{"type": "linear", "options": {"out_features": 3}}]})");
  EXPECT_EQ(Network::create(spec, {2}).classes(), 3);
  EXPECT_EQ(Network::create(Identity{.model = spec, .sample_shape = {2}}).classes(), 0);
}

TEST(NetworkCreate, CloneSharesNoState) {
  const auto spec = ModelSpec::parse(R"({"nodes": [{"type": "linear", "options": {"out_features": 3}}]})");
  const Network network = Network::create(spec, {2}, 3, 7);
  const Network copy = network.clone();
  const Tensor weight = network.module().named_parameters().front().second.tensor();
  Tensor other = copy.module().named_parameters().front().second.tensor();
  EXPECT_EQ(weight.to_vector<float>(), other.to_vector<float>());
  other.copy_from(Tensor::zeros(other.shape()));
  EXPECT_NE(weight.to_vector<float>(), other.to_vector<float>());
}

}  // namespace
}  // namespace fq::identity_test
