#include "fakequant/layers/model/generate.h"

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/modules/attention.h"
#include "fakequant/layers/modules/recurrent.h"
#include "layers/networks.h"

namespace fq::generate_test {
namespace {

constexpr std::int64_t kVocabulary = 11, kWidth = 24, kContext = 10;

/// Embedding, positions, `middle`, and logits with the classes first.
std::shared_ptr<Graph> network(std::vector<GraphNode> middle) {
  const RandomScope scope(3, 0);
  std::vector<GraphNode> nodes{{"tokens", std::make_shared<Embedding>(kVocabulary, kWidth), {"input"}},
                               {"positions", std::make_shared<Positions>(kContext, kWidth), {"tokens"}}};
  const std::string last = middle.back().name;
  for (auto& node : middle) nodes.push_back(std::move(node));
  nodes.push_back({"head", std::make_shared<Linear>(kWidth, kVocabulary), {last}});
  nodes.push_back({"first", make_transpose({0, 2, 1}), {"head"}});
  return std::make_shared<Graph>(std::move(nodes));
}

std::shared_ptr<Attention> attention(bool causal = true) {
  return std::make_shared<Attention>(
      AttentionOptions{.width = kWidth, .heads = 4, .kv_heads = 2, .causal = causal, .rotary = true});
}

std::shared_ptr<Graph> gpt() {
  return network({{"attention1", attention(), {"positions"}}, {"attention2", attention(), {"attention1"}}});
}

Tensor prompts(std::vector<std::int64_t> ids, std::int64_t texts = 1) {
  return Tensor::from(ids, {texts, std::ssize(ids) / texts});
}

std::vector<std::int64_t> generated_ids(Module& model, const Tensor& prompt, const GenerateOptions& options) {
  return generate(model, prompt, options).to_vector<std::int64_t>();
}

TEST(Generate, GivesTheSameTextWithAndWithoutACache) {
  const auto model = gpt();
  for (const std::int64_t context : {kContext, std::int64_t{7}, std::int64_t{1}})
    for (const double temperature : {0.0, 0.7}) {
      GenerateOptions options{.tokens = 40, .temperature = temperature, .seed = 5, .context = context};
      const auto cached = generated_ids(*model, prompts({1, 2, 3}), options);
      options.cache = false;
      EXPECT_EQ(cached, generated_ids(*model, prompts({1, 2, 3}), options)) << context << ", " << temperature;
      EXPECT_EQ(cached.size(), 43u);
    }
}

/// A row's text does not depend on the other rows: its random numbers follow from its index and the seed.
TEST(Generate, TextsAreIndependent) {
  const auto model = gpt();
  const GenerateOptions options{.tokens = 20, .seed = 8, .context = kContext};
  const auto one = generated_ids(*model, prompts({1, 2, 3}), options);
  const auto both = generated_ids(*model, prompts({1, 2, 3, 4, 5, 6}, 2), options);
  EXPECT_EQ(one, std::vector<std::int64_t>(both.begin(), both.begin() + 23));
  const auto same = generated_ids(*model, prompts({1, 2, 3, 1, 2, 3}, 2), options);
  EXPECT_EQ(one, std::vector<std::int64_t>(same.begin(), same.begin() + 23));
  EXPECT_NE(one, std::vector<std::int64_t>(same.begin() + 23, same.end()));
  GenerateOptions other = options;
  other.seed = 9;
  EXPECT_NE(one, generated_ids(*model, prompts({1, 2, 3}), other));
}

TEST(Generate, IsGreedyAtZeroTemperatureAndWithOneToken) {
  const auto model = gpt();
  const GenerateOptions coldest{.tokens = 12, .temperature = 0, .context = kContext},
      first{.tokens = 12, .temperature = 3, .top_k = 1, .context = kContext};
  EXPECT_EQ(generated_ids(*model, prompts({4}), coldest), generated_ids(*model, prompts({4}), first));
}

/// A recurrent layer has no cache: such models are detected and computed from the start for each token.
TEST(Generate, DisablesTheCacheIfItWouldChangeBits) {
  const auto model =
      network({{"attention", attention(), {"positions"}},
               {"gru", std::make_shared<Recurrent>(Recurrent::Kind::gru, kWidth, kWidth), {"attention"}}});
  GenerateOptions options{.tokens = 15, .context = kContext};
  const auto found = generated_ids(*model, prompts({1, 2}), options);
  options.cache = false;
  EXPECT_EQ(found, generated_ids(*model, prompts({1, 2}), options));
  const auto sees_all = network({{"attention", attention(false), {"positions"}}});
  EXPECT_EQ(generated_ids(*sees_all, prompts({1, 2}), {.tokens = 5, .context = kContext}).size(), 7u);
}

TEST(Generate, RestoresTheModeAndFreesTheCache) {
  const auto model = gpt();
  model->train();
  (void)generate(*model, prompts({1}), {.tokens = 3, .context = kContext});
  EXPECT_TRUE(model->training());
  const NoGrad none;
  const Variable x(prompts({1, 2, 3}));
  EXPECT_EQ((*model)(x).tensor().to_vector<float>(), (*model)(x).tensor().to_vector<float>());
}

TEST(Generate, RejectsUnsupportedInput) {
  const auto model = gpt();
  const GenerateOptions options{.tokens = 3, .context = kContext};
  EXPECT_THROW((void)generate(*model, prompts({1, kVocabulary}), options), ArgumentError);
  EXPECT_THROW((void)generate(*model, prompts({1, -1}), options), ArgumentError);
  EXPECT_THROW((void)generate(*model, Tensor::zeros({1, 0}, DType::i64), options), ArgumentError);
  EXPECT_THROW((void)generate(*model, Tensor::zeros({1, 2}), options), ArgumentError);
  EXPECT_THROW((void)generate(*model, prompts({1}), {.temperature = -1}), ArgumentError);
  EXPECT_THROW((void)generate(*model, prompts({1}), {.context = 0}), ArgumentError);
  EXPECT_THROW((void)generate(*model, prompts({1}), {.tokens = 30, .context = kContext + 1}), ArgumentError);
  Embedding rows(kVocabulary, kWidth);
  EXPECT_THROW((void)generate(rows, prompts({1, 2}), options), ArgumentError);
}

}  // namespace
}  // namespace fq::generate_test
