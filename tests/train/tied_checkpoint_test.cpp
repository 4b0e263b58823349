#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "fakequant/layers/model/model_file.h"
#include "fakequant/train/loop/average.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq::tied_checkpoint_test {
namespace {

std::shared_ptr<Graph> network(std::uint64_t seed) {
  const auto spec = ModelSpec::parse(R"([
    {"name": "tokens", "type": "embedding", "options": {"vocabulary": 7, "width": 4}},
    {"name": "head", "type": "linear", "options": {"out_features": 7, "weight_of": "tokens"}}])");
  return build_model(spec, {3}, 0, {.seed = seed});
}

TEST(TiedCheckpoint, StoresTheWeightOnce) {
  const auto model = network(1), other = network(2);
  StateDict state = model_state(*model, nullptr);
  EXPECT_TRUE(state.contains("parameters/tokens.weight"));
  EXPECT_FALSE(state.contains("parameters/head.weight"));
  EXPECT_TRUE(state.contains("parameters/head.bias"));
  load_model_state(*other, state, "some.h5");
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(bitwise_equal(other->parameters()[i].tensor(), model->parameters()[i].tensor()));
  EXPECT_EQ(other->named_parameters()[0].second.node(), other->named_parameters()[2].second.node());
}

/// As files were before a tied weight was kept once.
TEST(TiedCheckpoint, AcceptsTheWeightTwice) {
  const auto model = network(1), other = network(2);
  StateDict state = model_state(*model, nullptr);
  state.set("parameters/head.weight", state.at("parameters/tokens.weight"));
  load_model_state(*other, state, "some.h5");
  EXPECT_TRUE(bitwise_equal(other->parameters()[0].tensor(), model->parameters()[0].tensor()));
}

TEST(TiedCheckpoint, IsAveragedOnce) {
  const WeightAverage average(*network(1), 0.9);
  EXPECT_TRUE(average.state_dict().contains("parameters/tokens.weight"));
  EXPECT_FALSE(average.state_dict().contains("parameters/head.weight"));
}

}  // namespace
}  // namespace fq::tied_checkpoint_test
