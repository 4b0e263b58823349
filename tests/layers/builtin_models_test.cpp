#include "fakequant/layers/model/builtin_models.h"

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/model/trace.h"
#include "model_text.h"

namespace fq::builtin_models_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string source(const std::string& path) { return std::string(FAKEQUANT_SOURCE_DIR) + "/" + path; }

void expect_model(const ModelSpec& spec, const Shape& sample, std::int64_t classes, std::int64_t parameters) {
  const auto model = build_model(spec, sample, classes);
  EXPECT_EQ(test::parameter_count(*model), parameters) << spec.name();
  Shape batch{3};
  batch.insert(batch.end(), sample.begin(), sample.end());
  const auto cost = summary(*model, batch);
  EXPECT_EQ(cost.rows.back().output, (Shape{3, classes})) << spec.name();
  EXPECT_EQ(cost.parameters, parameters) << spec.name();
}

TEST(BuiltinModels, HaveTheExpectedParameters) {
  expect_model(ModelSpec::load("mlp"), {784}, 10, 784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10);
  expect_model(ModelSpec::load("cnn"), {1, 28, 28}, 10,
               9 * 32 + 9 * 32 * 64 + 9 * 64 * 64 + 2 * 160 + 3136 * 10 + 10);
  expect_model(ModelSpec::load("resnet20"), {3, 32, 32}, 10,
               272474);  // 269,722 and two 1x1 shortcuts with BN
}

TEST(BuiltinModels, AcceptAnySizeAndChannels) {
  expect_model(ModelSpec::load("mlp", R"({"hidden": [5], "batch_norm": true})"), {2, 3, 4}, 7,
               24 * 5 + 5 + 10 + 42);
  expect_model(ModelSpec::load("resnet20", R"({"widths": [4, 8], "blocks": 1})"), {2, 5, 9}, 3,
               18 * 4 + 8 + 2 * (36 * 4 + 8) + 36 * 8 + 16 + 72 * 8 + 16 + 32 + 16 + 24 + 3);
  expect_model(ModelSpec::load("cnn", R"({"widths": [4, 4], "features": 6})"), {1, 8, 8}, 2,
               36 + 8 + 144 + 8 + 64 * 6 + 6 + 12 + 14);
  EXPECT_THAT(test::error_message([] {
                (void)build_model(ModelSpec::load("cnn"), {1, 2, 2}, 10);
              }),
              HasSubstr("pool"));
}

TEST(BuiltinModels, AcceptSignals) {
  expect_model(ModelSpec::load("cnn", R"({"widths": [4, 4], "signals": true})"), {2, 10}, 3,
               24 + 8 + 48 + 8 + 4 * 5 * 3 + 3);
  expect_model(ModelSpec::load("resnet20", R"({"widths": [4, 8], "blocks": 1, "signals": true})"), {2, 12}, 3,
               6 * 4 + 8 + 2 * (12 * 4 + 8) + 12 * 8 + 16 + 24 * 8 + 16 + 32 + 16 + 24 + 3);
}

/// [N, L] ids to a class for each next token.
TEST(BuiltinModels, GptPredictsTheNextTokens) {
  const auto spec =
      ModelSpec::load("gpt", R"({"layers": 2, "width": 16, "heads": 4, "kv_heads": 2, "context": 8})");
  const auto model = build_model(spec, {6}, 11, {.dense = true});
  EXPECT_EQ(test::parameter_count(*model),
            11 * 16 + 8 * 16 +
                2 * (4 * 16 + 2 * (16 * 16 + 16) + 2 * (8 * 16 + 8) + 2 * 4 * 16 * 16 + 5 * 16) + 2 * 16 +
                16 * 11);
  model->eval();
  const auto logits = [&](std::vector<std::int64_t> ids) {
    const auto length = static_cast<std::int64_t>(ids.size());
    return (*model)(Variable(Tensor::from(std::move(ids), {1, length}))).tensor();
  };
  const Tensor y = logits({1, 2, 3, 4, 5, 6}), z = logits({1, 2, 3, 4, 5, 0});
  EXPECT_EQ(y.shape(), (Shape{1, 11, 6}));
  const auto a = y.to_vector<float>(), b = z.to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool before = i % 6 < 5;
    EXPECT_TRUE(!before || !(a[i] < b[i] || b[i] < a[i])) << "a later token changed output " << i;
  }
  EXPECT_THAT(test::error_message([&] { (void)logits({1, 11, 3}); }), HasSubstr("11"));
  EXPECT_THAT(test::error_message([&] { (void)build_model(spec, {9}, 11, {.dense = true}); }),
              HasSubstr("the input has 9 tokens, the model's context is 8"));
  EXPECT_THAT(test::error_message([&] {
                (void)build_model(ModelSpec::load("gpt", R"({"heads": 3})"), {8}, 11, {.dense = true});
              }),
              HasSubstr("a width of 128 is not divisible by 3 heads"));
}

TEST(BuiltinModels, GptSupportsLlamaOptions) {
  const auto spec = ModelSpec::load("gpt", R"({"layers": 2, "width": 16, "heads": 4, "kv_heads": 2, "norm":
      "rms_norm", "feed_forward": "swiglu", "positions": "rotary", "bias": false, "tied": true})");
  const auto model = build_model(spec, {6}, 11, {.dense = true});
  EXPECT_EQ(test::parameter_count(*model),
            11 * 16 + 2 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 3 * 64 * 16) + 16);
  EXPECT_EQ(builtin_model_text("gpt", R"({"rotary": true})"),
            builtin_model_text("gpt", R"({"positions": "rotary"})"));
}

/// Dropout follows the positions, and in each block attention and the feed forward layers.
TEST(BuiltinModels, TransformersHaveDropout) {
  for (const char* name : {"gpt", "vit", "encoder"}) {
    const auto text = builtin_model_text(name, R"({"layers": 2, "dropout": 0.25})");
    std::size_t count = 0;
    for (auto at = text.find(R"("type": "dropout", "options": {"p": 0.25})"); at != text.npos;
         at = text.find(R"("type": "dropout")", at + 1))
      ++count;
    EXPECT_EQ(count, 5) << name;
    EXPECT_EQ(builtin_model_text(name).find("dropout"), std::string::npos) << name;
    const auto inside = builtin_model_text(name, R"({"attention_dropout": 0.25})");
    EXPECT_THAT(inside, HasSubstr(R"("dropout": 0.25)")) << name;
    EXPECT_THAT(inside, Not(HasSubstr(R"("type": "dropout")"))) << name;
  }
}

TEST(BuiltinModels, VitAcceptsImagesOfAnySize) {
  const std::int64_t block = 2 * (2 * 8) + 4 * (8 * 8 + 8) + (8 * 32 + 32) + (32 * 8 + 8);
  expect_model(ModelSpec::load("vit", R"({"layers": 2, "width": 8, "heads": 2, "patch": 3})"), {2, 9, 7}, 5,
               2 * 9 * 8 + 8 + 6 * 8 + 2 * block + 2 * 8 + 8 * 5 + 5);
  expect_model(
      ModelSpec::load("vit", R"({"layers": 1, "width": 8, "heads": 2, "patch": 4, "pool": "token"})"),
      {1, 8, 8}, 3, 16 * 8 + 8 + 8 + 5 * 8 + block + 2 * 8 + 8 * 3 + 3);
  EXPECT_THAT(test::error_message([] {
                (void)build_model(ModelSpec::load("vit", R"({"heads": 5})"), {1, 8, 8}, 3);
              }),
              HasSubstr("a width of 64 is not divisible by 5 heads"));
}

TEST(BuiltinModels, EncoderClassifiesATokenList) {
  const std::int64_t block = 2 * (2 * 8) + 4 * (8 * 8 + 8) + (8 * 32 + 32) + (32 * 8 + 8);
  for (const char* pool : {"mean", "first"}) {
    const std::string options =
        fmt::format(R"({{"layers": 2, "width": 8, "heads": 2, "vocabulary": 11, "pool": "{}"}})", pool);
    expect_model(ModelSpec::load("encoder", options), {6}, 3, 11 * 8 + 6 * 8 + 2 * 8 + 2 * block + 8 * 3 + 3);
  }
  EXPECT_THAT(
      test::error_message([] { (void)build_model(ModelSpec::load("encoder", R"({"context": 4})"), {6}, 3); }),
      HasSubstr("the input has 6 tokens, the model's context is 4"));
}

TEST(BuiltinModels, OptionsAreChecked) {
  const auto message = [](const char* name, const char* options) {
    return test::error_message([&] { (void)builtin_model_text(name, options); });
  };
  EXPECT_THAT(message("cnn", R"({"widht": 1})"), HasSubstr("[options of cnn] line 1: unknown key 'widht'"));
  EXPECT_THAT(message("cnn", R"({"widths": []})"), HasSubstr("use 1 to 100"));
  EXPECT_THAT(message("mlp", R"({"hidden": [0]})"), HasSubstr("0 is not a whole number from 1"));
  EXPECT_THAT(message("resnet20", R"({"blocks": 1e9})"), HasSubstr("'blocks'"));
  EXPECT_THAT(message("gpt", R"({"positions": "none"})"), HasSubstr("unknown positions 'none'"));
  EXPECT_THAT(message("vit", R"({"dropout": 1})"), HasSubstr("'dropout'"));
  EXPECT_THAT(message("encoder", R"({"pool": "max"})"),
              HasSubstr("unknown pool 'max': did you mean 'mean'?"));
  EXPECT_THAT(message("resnet18", ""), HasSubstr("did you mean 'resnet20'?"));
}

std::string contents(const std::string& path) {
  std::ifstream in(source(path));
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(ShippedModels, MatchTheBuiltinModels) {
  for (const auto& name : builtin_models())
    EXPECT_EQ(contents("models/" + name + ".json"), builtin_model_text(name)) << name;
}

TEST(ShippedModels, DocumentationNamesEveryTypeAndOption) {
  const auto page = contents("docs/models.md");
  for (const auto& [type, entry] : detail::standard_layer_types()) {
    EXPECT_THAT(page, HasSubstr("`" + type + "`"));
    for (const auto& option : entry.options) EXPECT_THAT(page, HasSubstr("`" + option + "`")) << type;
  }
  for (const auto& row : operator_table())
    for (const auto& option : row.options())
      if (row.run != nullptr && !option.is_choice() && !option.is_required()) {
        EXPECT_THAT(page, HasSubstr(fmt::format("`{}` ({})", option.name, option.fallback))) << row.name;
      }
  for (const auto& name : builtin_models()) EXPECT_THAT(page, HasSubstr("| `" + name + "` |"));
}

TEST(ShippedModels, DigitsCnnIsSmall) {
  expect_model(ModelSpec::load(source("models/digits_cnn.json")), {1, 8, 8}, 10, 42698);
  expect_model(ModelSpec::load(source("models/digits_cnn.json")), {3, 12, 10}, 4, 42698 + 2 * 288 - 6 * 65);
}

}  // namespace
}  // namespace fq::builtin_models_test
