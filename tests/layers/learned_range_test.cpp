// Ranges that are trained.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/linear.h"
#include "layers/networks.h"

namespace fq::learned_range_test {
namespace {

using namespace test;
using ::testing::HasSubstr;

std::unique_ptr<TensorQuantizer> learned(QuantDescriptorOptions options, const Tensor& amax,
                                         AmaxGradient gradient = AmaxGradient::clip,
                                         Arithmetic arithmetic = Arithmetic::deployed) {
  options.learn_amax = true;
  auto q = std::make_unique<TensorQuantizer>(QuantDescriptor(options), arithmetic);
  q->update([&](QuantParams& s) { s.amax_gradient = gradient; });
  q->set_amax(amax);
  return q;
}

std::vector<float> gradient(TensorQuantizer& q, const Tensor& x, const Tensor& dy) {
  Variable range = q.range().learned();
  range.zero_grad();
  q(Variable(x)).backward(dy);
  return range.grad().to_vector<float>();
}

TEST(LearnedRange, BecomesAParameterWithItsFirstValue) {
  TensorQuantizer q(QuantDescriptor({.learn_amax = true}));
  EXPECT_TRUE(q.parameters().empty());
  q.observer().collect(Tensor::from({-2.0f, 1.0f}));
  q.load_calibrated_amax();
  ASSERT_EQ(q.named_parameters().size(), 1u);
  EXPECT_EQ(q.named_parameters()[0].first, "amax");
  EXPECT_EQ(q.amax().item(), 2.0);
  const auto* node = q.range().learned().node().get();
  q.set_amax(Tensor::scalar(3));
  EXPECT_EQ(q.range().learned().node().get(), node);
  Variable range = q.range().learned();
  range.mutable_tensor().mutable_data<float>()[0] = 1.27f;
  EXPECT_FLOAT_EQ(q.scale().to_vector<float>()[0], 0.01f);
  q.set_descriptor(QuantDescriptor());
  EXPECT_TRUE(q.parameters().empty());
  EXPECT_FLOAT_EQ(static_cast<float>(q.amax().item()), 1.27f);
  TensorQuantizer given(QuantDescriptor({.amax = 5.0, .learn_amax = true}));
  EXPECT_EQ(given.parameters().size(), 1u);
}

TEST(LearnedRange, SumsGradientsOutsideTheBounds) {
  const Tensor x = Tensor::from({-3.0f, -1.0f, 0.5f, 2.0f, 7.0f}),
               dy = Tensor::from({1.0f, 10.0f, 100.0f, 1000.0f, 10000.0f});
  auto q = learned({}, Tensor::scalar(2));
  EXPECT_EQ(gradient(*q, x, dy), (std::vector<float>{10999}));
  auto positive = learned({.is_unsigned = true}, Tensor::scalar(2));
  EXPECT_EQ(gradient(*positive, x, dy), (std::vector<float>{11000}));
  auto doubled = learned({.scale_amax = 2.0}, Tensor::scalar(2));
  EXPECT_EQ(gradient(*doubled, x, dy), (std::vector<float>{20000}));
}

TEST(LearnedRange, OfAWeightAllowsSeveralRecordings) {
  const auto q = learned({}, Tensor::scalar(1.0));
  Variable w(Tensor::from({0.5f, 2.0f, -3.0f}), true);
  const Variable first = q->weight(w), second = q->weight(w);
  first.backward(Tensor::full({3}, 1.0));
  second.backward(Tensor::full({3}, 2.0));
  EXPECT_THAT(w.grad().to_vector<float>(), testing::ElementsAre(3, 0, 0));
  EXPECT_EQ(q->range().learned().grad().to_vector<float>().at(0), 0);  // 3 - 3 outside of the bounds
}

TEST(LearnedRange, LsqGradientIsTheStepGradient) {
  const Tensor x = Tensor::from({-3.0f, 0.6f, 1.3f, 9.0f}), dy = Tensor::from({1.0f, 2.0f, 3.0f, 4.0f});
  auto q = learned({.num_bits = 4}, Tensor::scalar(7), AmaxGradient::lsq);
  const double sum = 0 + 2 * (1 - 0.6) + 3 * (1 - 1.3) + 4 * 7;
  EXPECT_NEAR(gradient(*q, x, dy)[0], sum / (7 * std::sqrt(4.0 * 7)), 1e-5);
}

TEST(LearnedRange, SupportsOneRangePerChannel) {
  const Tensor x = Tensor::from({3.0f, 1.0f, -5.0f, 1.0f, 9.0f, 0.0f}, {2, 3}),
               dy = Tensor::full({2, 3}, 1.0);
  auto q = learned({.axis = 1}, Tensor::from({2.0f, 2.0f, 4.0f}));
  EXPECT_EQ(gradient(*q, x, dy), (std::vector<float>{1, 1, -1}));
  Variable input(x, true);
  (*q)(input).backward(dy);
  EXPECT_EQ(input.grad().to_vector<float>(), (std::vector<float>{0, 1, 0, 1, 0, 1}));
}

TEST(LearnedRange, SurvivesAStepBelowZero) {
  auto q = learned({}, Tensor::scalar(2));
  Variable range = q->range().learned();
  range.mutable_tensor().mutable_data<float>()[0] = -1;
  EXPECT_EQ(gradient(*q, Tensor::from({1.0f, -1.0f}), Tensor::from({1.0f, -1.0f})), (std::vector<float>{2}));
}

TEST(LearnedRange, ReadsSumsAfterTheRelu) {
  Linear linear(2, 2, false);
  linear.parameters()[0].mutable_tensor().copy_from(Tensor::from({1.0f, 0.0f, 0.0f, 1.0f}, {2, 2}));
  TensorQuantizer inputs, weights;
  inputs.set_amax(Tensor::scalar(127));
  weights.set_amax(Tensor::scalar(1));
  auto q = learned({}, Tensor::scalar(2));
  const Variable sums = ops::linear(inputs(Variable(Tensor::from({-5.0f, 5.0f}, {1, 2}))),
                                    weights.weight(linear.parameters()[0]), {});
  ASSERT_NE(sums.accumulator(), nullptr);
  (*q)(ops::relu(sums)).backward(Tensor::full({1, 2}, 1.0));
  EXPECT_EQ(q->range().learned().grad().to_vector<float>(), (std::vector<float>{1}));
}

TEST(LearnedRange, ReferenceClipsAndQuantizes) {
  const Tensor x = Tensor::from({-3.0f, -1.0f, 0.5f, 7.0f}),
               dy = Tensor::from({1.0f, 10.0f, 100.0f, 1000.0f});
  auto q = learned({}, Tensor::scalar(2), AmaxGradient::clip, Arithmetic::reference);
  EXPECT_EQ(gradient(*q, x, dy), (std::vector<float>{999}));
  Variable input(x, true);
  const Variable y = (*q)(input);
  y.backward(dy);
  EXPECT_EQ(y.tensor().to_vector<float>()[0], -2.0f);
  EXPECT_EQ(input.grad().to_vector<float>(), (std::vector<float>{0, 10, 100, 0}));
}

TEST(LearnedRange, IsSavedWithItsGradient) {
  auto q = learned({.axis = 0}, Tensor::from({1.0f, 2.0f}), AmaxGradient::lsq);
  q->update([](QuantParams& s) { s.pass_through_bwd = true; });
  StateDict state;
  q->save(state, "q");
  TensorQuantizer other;
  other.load(state, "q");
  EXPECT_EQ(other.amax().to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(other.parameters().size(), 1u);
  EXPECT_EQ(other.params().amax_gradient, AmaxGradient::lsq);
  EXPECT_TRUE(other.params().passes_through());
  const auto* node = other.range().learned().node().get();
  other.load(state, "q");
  EXPECT_EQ(other.range().learned().node().get(), node);
}

TEST(LearnedRange, RejectsAxesInReference) {
  const auto error_text = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "no error";
  };
  const QuantDescriptor per_axis({.axis = 0, .learn_amax = true});
  EXPECT_THAT(error_text([&] { TensorQuantizer q(per_axis, Arithmetic::reference); }),
              HasSubstr("leave axis out"));
  TensorQuantizer q(per_axis);
  EXPECT_THAT(error_text([&] { q.update([](QuantParams& s) { s.arithmetic = Arithmetic::reference; }); }),
              HasSubstr("leave axis out"));
  EXPECT_EQ(q.params().arithmetic, Arithmetic::deployed);
  TensorQuantizer reference(QuantDescriptor({.learn_amax = true}), Arithmetic::reference);
  EXPECT_THAT(
      error_text([&] { reference.update([](QuantParams& s) { s.amax_gradient = AmaxGradient::lsq; }); }),
      HasSubstr("learns by clip"));
  auto model = residual_net();
  EXPECT_THAT(error_text([&] { learn_ranges(*model); }), HasSubstr("no quantizer of an activation"));
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  EXPECT_THAT(error_text([&] { learn_ranges(*model); }), HasSubstr("calibrate it first"));
}

}  // namespace
}  // namespace fq::learned_range_test
