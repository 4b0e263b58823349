#include "fakequant/train/low_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/train/loop/checkpoint.h"
#include "thrown.h"
#include "train/loop_run.h"

namespace fq::low_rank_test {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

test::Plan plan(std::int64_t epochs = 2) {
  test::Plan out;
  out.quantized = true;
  out.options.update.average_decay = 0;
  out.options.epochs = epochs;
  out.options.low_rank = {.rank = 2, .alpha = 3};
  return out;
}

std::vector<float> at(const StateDict& state, const std::string& name) {
  return state.at(name).to_vector<float>();
}

std::string error_text(const LowRankOptions& options) {
  const auto model = test::small_network(true);
  return test::error_message([&] { LowRankAdapters adapters(*model, options); });
}

TEST(LowRankAdapters, TrainOnlyAdaptersAndMergeThem) {
  const auto start = test::small_network(true);
  const StateDict before = model_state(*start, nullptr);
  const auto trainer = plan().make();
  trainer->fit();
  const StateDict after = trainer->state_dict();
  EXPECT_THAT(
      after.sub("optimizer").names(),
      UnorderedElementsAre("conv.lora_A/mean", "conv.lora_A/square", "conv.lora_B/mean", "conv.lora_B/square",
                           "fc.lora_A/mean", "fc.lora_A/square", "fc.lora_B/mean", "fc.lora_B/square"));
  for (const char* name : {"conv.bias", "bn.weight", "bn.bias", "fc.bias"}) {
    const std::string parameter = std::string("parameters/") + name;
    if (before.contains(parameter)) {
      EXPECT_EQ(at(after, parameter), at(before, parameter)) << name;
    }
  }
  for (const auto& [layer, rows, columns] : {std::tuple{"conv", 6, 9}, std::tuple{"fc", 4, 96}}) {
    const std::string weight = std::string("parameters/") + layer + ".weight",
                      of = std::string("adapters/") + layer;
    EXPECT_EQ(at(after, of + "/base"), at(before, weight));
    const auto w = at(after, weight), base = at(after, of + "/base"), a = at(after, of + "/lora_A"),
               b = at(after, of + "/lora_B");
    EXPECT_NE(w, base);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) {
        const auto at_ij = static_cast<std::size_t>(i * columns + j);
        double sum = 0;
        for (int r = 0; r < 2; ++r)
          sum += double(b[static_cast<std::size_t>(i * 2 + r)]) *
                 double(a[static_cast<std::size_t>(r * columns + j)]);
        EXPECT_NEAR(w[at_ij], base[at_ij] + 1.5 * sum,
                    1e-6);  // two products and two sums in f32, of at most 1
      }
  }
}

TEST(LowRankAdapters, StartFromTheExistingCodes) {
  const auto model = test::small_network(true);
  const auto before = at(model_state(*model, nullptr), "parameters/fc.weight");
  LowRankAdapters adapters(*model, {.rank = 4});
  adapters.merge();
  EXPECT_EQ(at(model_state(*model, nullptr), "parameters/fc.weight"), before);
}

TEST(LowRankAdapters, GradientsMatchTheMergedWeight) {
  const auto model = test::small_network(true);
  LowRankAdapters adapters(*model, {.rank = 1, .alpha = 2, .layers = "fc"});
  const auto parameters = adapters.parameters().named_parameters();
  ASSERT_EQ(parameters.size(), 2U);
  Variable a = parameters[0].second, b = parameters[1].second;
  b.mutable_tensor().copy_from(Tensor::from(std::vector<float>{1, 2, 0, -1}, {4, 1}));
  Variable weight = dynamic_cast<QuantLinear&>(model->at("fc")).weight();
  weight.set_grad(Tensor::full({4, 96}, 0.5));
  adapters.take_gradients();
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_EQ(a.grad().to_vector<float>(), std::vector<float>(96, 2));  // 2 * (1 + 2 + 0 - 1) * 0.5
  double sum = 0;
  for (const float v : a.tensor().to_vector<float>()) sum += v;
  for (const float v : b.grad().to_vector<float>()) EXPECT_NEAR(v, sum, 1e-5);  // 2 * 0.5 * sum, in f32
}

TEST(LowRankAdapters, ResumeBitwise) {
  auto settings = plan();
  settings.options.schedule = {.kind = "constant"};
  auto half = settings;
  half.options.epochs = 1;
  const auto one = settings.make(), two = half.make(), rest = settings.make();
  one->fit();
  two->fit();
  rest->resume(two->state_dict(), "half.h5");
  rest->fit();
  const StateDict straight = one->state_dict(), resumed = rest->state_dict();
  for (const auto& [name, tensor] : straight.tensors())
    if (tensor.dtype() == DType::f32) {
      EXPECT_EQ(at(resumed, name), at(straight, name)) << name;
    }
}

TEST(LowRankAdapters, RestoreGradientsOfOtherParameters) {
  const auto model = test::small_network(true);
  { const LowRankAdapters adapters(*model, {.rank = 1, .layers = "fc"}); }
  for (const auto& [name, parameter] : model->named_parameters())
    EXPECT_TRUE(parameter.requires_grad()) << name;
}

TEST(LowRankAdapters, RejectInvalidOptions) {
  EXPECT_THAT(error_text({.rank = 0}), HasSubstr("the rank of adapters is 0: use 1 or more"));
  EXPECT_THAT(error_text({.rank = 5}),
              HasSubstr("the rank of adapters is 5, and the weight of fc is 4 x 96: use at most 4"));
  EXPECT_THAT(error_text({.rank = 1, .layers = "fd"}),
              HasSubstr("no quantized layer matches: did you mean 'fc'?"));
  EXPECT_THAT(error_text({.rank = 1, .alpha = -1}), HasSubstr("the alpha of adapters is -1"));
  const auto in_float = test::small_network(false);
  EXPECT_THAT(test::error_message([&] { LowRankAdapters adapters(*in_float, {.rank = 1}); }),
              HasSubstr("quantize the model before"));
  LowRankAdapters two(*test::small_network(true), {.rank = 2});
  const auto model = test::small_network(true);
  LowRankAdapters one(*model, {.rank = 1});
  EXPECT_THROW(one.load_state(two.state_dict()), Error);
}

TEST(LowRankAdapters, RejectRunsThatChangeWeightsOrGrids) {
  for (const auto& change :
       std::vector<std::function<void(TrainerOptions&)>>{[](auto& o) { o.ranges.amax = AmaxMode::learned; },
                                                         [](auto& o) { o.ranges.learn_weight_ranges = true; },
                                                         [](auto& o) { o.update.average_decay = 0.9; }}) {
    auto rejected = plan();
    change(rejected.options);
    EXPECT_THAT(test::error_message([&] { (void)rejected.make(); }), HasSubstr("low_rank adapters"));
  }
}

}  // namespace
}  // namespace fq::low_rank_test
