#include <gmock/gmock.h>

#include "fakequant/core/ops/loss.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantize.h"
#include "model_text.h"

namespace fq::tied_weights_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTied = R"([
  {"name": "tokens", "type": "embedding", "options": {"vocabulary": 7, "width": 4}},
  {"name": "relu", "type": "relu"},
  {"name": "head", "type": "linear", "options": {"out_features": 7, "bias": false, "weight_of": "tokens"}},
  {"name": "classes_first", "type": "transpose", "options": {"axes": [0, 2, 1]}}])";

std::shared_ptr<Graph> network(const std::string& text) {
  return build_model(ModelSpec::parse(text), {3}, 7, {.seed = 3, .dense = true});
}

std::string untied() {
  std::string text = kTied;
  const std::string option = R"(, "weight_of": "tokens")";
  text.erase(text.find(option), option.size());
  return text;
}

Variable compute_loss(Module& model) {
  const Variable ids(Tensor::from<std::int64_t>({0, 1, 2, 6, 2, 1}, {2, 3}));
  const Variable logits = ops::reshape(ops::transpose(model(ids), {0, 2, 1}), {6, 7});
  return ops::cross_entropy(logits, Tensor::from<std::int64_t>({1, 2, 6, 2, 1, 0}, {6}));
}

TEST(TiedWeights, AreOneParameterUnderTwoNames) {
  const auto model = network(kTied);
  EXPECT_EQ(model->parameters().size(), 1U);
  ASSERT_EQ(model->named_parameters().size(), 2U);
  EXPECT_EQ(model->named_parameters()[0].first, "tokens.weight");
  EXPECT_EQ(model->named_parameters()[1].first, "head.weight");
  EXPECT_EQ(test::parameter_count(*model), 7 * 4);
  EXPECT_EQ(summary(*model, {2, 3}).parameters, 7 * 4);
  EXPECT_TRUE(is_tied(*model, model->parameters()[0]));
}

/// The gradient equals the sum of the gradients of two parameters with the same values.
TEST(TiedWeights, HaveTheSumOfBothGradients) {
  const auto tied = network(kTied), apart = network(untied());
  const Tensor table = tied->parameters()[0].tensor();
  for (const auto& parameter : apart->parameters()) Tensor(parameter.tensor()).copy_from(table);
  compute_loss(*tied).backward();
  compute_loss(*apart).backward();
  const auto sum = tied->parameters()[0].grad().to_vector<float>(),
             a = apart->parameters()[0].grad().to_vector<float>(),
             b = apart->parameters()[1].grad().to_vector<float>();
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], a[i] + b[i]) << i;
}

/// The product reads codes; the embedding reads the float table.
TEST(TiedWeights, AreQuantizedForTheProductOnly) {
  const auto model = network(kTied);
  static_cast<void>(quantize(*model, QuantConfig::preset("int8"), {1, 3}));
  const auto* head = dynamic_cast<const QuantLinear*>(&model->at("head"));
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->quantized_weight().node(), model->named_parameters()[0].second.node());
  EXPECT_EQ(model->at("tokens").type(), "embedding");
  EXPECT_EQ(model->parameters().size(), 1U);
}

TEST(TiedWeights, KeepTheBatchNormAfterThem) {
  const auto model = build_model(ModelSpec::parse(R"([
    {"name": "a", "type": "linear", "options": {"out_features": 5, "bias": false}},
    {"name": "b", "type": "linear", "options": {"out_features": 5, "bias": false, "weight_of": "a"}},
    {"name": "norm", "type": "batch_norm"}])"),
                                 {5}, 5);
  EXPECT_TRUE(fold_batch_norm(*model, {2, 5}).empty());
}

TEST(TiedWeights, MustExistAndMatch) {
  const auto error_text = [](const char* name, const char* out) {
    std::string text = kTied;
    text.replace(text.find("\"tokens\"}}"), 8, name);
    text.replace(text.find("\"out_features\": 7"), 17, out);
    return test::build_error(text, {3}, 0);
  };
  EXPECT_THAT(error_text("\"token\"", "\"out_features\": 7"),
              HasSubstr("'token' is no earlier layer with a weight: did you mean 'tokens'?"));
  EXPECT_THAT(error_text("\"relu\"", "\"out_features\": 7"), HasSubstr("'relu' is no earlier layer"));
  EXPECT_THAT(error_text("\"tokens\"", "\"out_features\": 8"),
              HasSubstr("the weight of 'tokens' is [7, 4], a layer of 4 to 8 features requires [8, 4]"));
}

}  // namespace
}  // namespace fq::tied_weights_test
