#include "fakequant/train/losses.h"

#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/ops.h"

namespace fq::losses_test {
namespace {

using ::testing::HasSubstr;

const Shape kImage{2, 3, 2, 2};

Tensor numbers(double (*f)(int), const Shape& shape) {
  std::vector<double> values(24);
  for (int i = 0; i < 24; ++i) values[static_cast<std::size_t>(i)] = f(i);
  return Tensor::from(values, shape);
}

Tensor outputs(const Shape& shape = {24}) {
  return numbers([](int i) { return 2 * std::sin(0.37 * i); }, shape);
}
Tensor target(const Shape& shape = {24}) {
  return numbers([](int i) { return std::cos(0.53 * i); }, shape);
}
Tensor truth(const Shape& shape = {24}) {
  return numbers([](int i) { return i % 3 == 0 ? 1.0 : 0.0; }, shape);
}

/// The loss and the length of its gradient, in f64.
struct Found {
  double loss, gradient;
};

Found found(const std::function<Variable(const Variable&)>& loss, const Shape& shape = {24}) {
  const Variable y(outputs(shape), true);
  const Variable value = loss(y);
  value.backward();
  double squares = 0;
  for (const double g : y.grad().to(Layout::row_major).to_vector<double>()) squares += g * g;
  return {value.item(), std::sqrt(squares)};
}

void expect(const Found& is, double loss, double gradient) {
  EXPECT_NEAR(is.loss, loss, 1e-11);
  EXPECT_NEAR(is.gradient, gradient, 1e-11);
}

/// Numbers of PyTorch 2.15 for these inputs: l1_loss, mse_loss, huber_loss(delta=0.7).
TEST(Losses, DistancesMatchPyTorch) {
  expect(found([](auto& y) { return losses::l1(y, target()); }), 1.629018788921, 0.204124145232);
  expect(found([](auto& y) { return losses::mse(y, target()); }), 3.373148071957, 0.749794201982);
  expect(found([](auto& y) { return losses::huber(y, target(), 0.7); }), 0.910291284387, 0.134697451446);
}

/// binary_cross_entropy_with_logits, also with weight [0.5, 2, 1] and pos_weight [3, 1, 0.5] of [8, 3].
TEST(Losses, BinaryLossesMatchPyTorch) {
  expect(found([](auto& y) { return losses::bce_with_logits(y, truth()); }), 1.017824619286, 0.124880036654);
  const auto weighted = [](const Variable& y) {
    return losses::bce_with_logits(y, truth({8, 3}), Tensor::from({0.5, 2.0, 1.0}, {3}),
                                   Tensor::from({3.0, 1.0, 0.5}, {3}));
  };
  expect(found(weighted, {8, 3}), 1.521868329553, 0.194348828129);
}

/// torchvision's sigmoid_focal_loss(reduction="mean"), also with alpha=-1, gamma=1.5; dice written out.
TEST(Losses, RareClassLossesMatchTorchvision) {
  expect(found([](auto& y) { return losses::focal(y, truth()); }), 0.383305506879, 0.092348294173);
  expect(found([](auto& y) { return losses::focal(y, truth(), -1, 1.5); }), 0.668659397347, 0.136049456012);
  expect(found([](auto& y) { return losses::dice(y, truth(kImage)); }, kImage), 0.469007636852,
         0.032188330679);
}

/// cross_entropy of [2, 3, 2, 2], one label ignored; with weight [0.5, 2, 1] and label_smoothing=0.1; of
/// softmax(target).
TEST(Losses, PixelLossesMatchPyTorch) {
  const Tensor labels = Tensor::from<std::int64_t>({0, 1, 2, -100, 1, 1, 0, 2}, {2, 2, 2});
  const losses::CrossEntropyOptions weighted{Tensor::from({0.5, 2.0, 1.0}, {3}), -100, 0.1};
  expect(found([&](auto& y) { return losses::cross_entropy(y, labels, {}); }, kImage), 2.175075685817,
         0.406515868187);
  expect(found([&](auto& y) { return losses::cross_entropy(y, labels, weighted); }, kImage), 1.848166329158,
         0.412115084431);
  const Tensor shares = ops::softmax(Variable(target(kImage)), 1).tensor();
  expect(found([&](auto& y) { return losses::soft_cross_entropy(y, shares); }, kImage), 2.151147047364,
         0.258024183533);
}

TEST(Losses, AreZeroIfAllLabelsAreIgnored) {
  const Tensor none = Tensor::full({2, 2, 2}, -100, DType::i64);
  const Found all = found([&](auto& y) { return losses::cross_entropy(y, none, {}); }, kImage);
  EXPECT_EQ(all.loss, 0.0);
  EXPECT_EQ(all.gradient, 0.0);
}

/// Losses of half precision outputs are not supported; floats agree with doubles to float precision.
TEST(Losses, FloatMatchesDouble) {
  const Variable y(outputs().to(DType::f32));
  EXPECT_NEAR(losses::huber(y, target()).item(), losses::huber(outputs(), target()).item(), 1e-6);
  EXPECT_NEAR(losses::bce_with_logits(y, truth()).item(), losses::bce_with_logits(outputs(), truth()).item(),
              1e-6);
  EXPECT_EQ(losses::l1(y, target()).tensor().dtype(), DType::f32);
}

std::string error_text(const std::function<Variable()>& loss) {
  try {
    (void)loss();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Losses, RejectMismatchedInput) {
  const Variable y(outputs(kImage));
  EXPECT_THAT(error_text([&] { return losses::l1(y, target()); }),
              HasSubstr("[l1] the outputs are [2, 3, 2, 2]"));
  EXPECT_THAT(error_text([&] { return losses::huber(y, target(kImage), 0); }), HasSubstr("delta is 0"));
  EXPECT_THAT(error_text([&] {
                return losses::cross_entropy(y, Tensor::zeros({2, 2}, DType::i64), {});
              }),
              HasSubstr("use [2, 2, 2]"));
  EXPECT_THAT(error_text([&] {
                return losses::cross_entropy(y, Tensor::full({2, 2, 2}, 3, DType::i64), {});
              }),
              HasSubstr("label 0 of 8 is 3: use 0 to 2"));
  EXPECT_THAT(error_text([&] {
                return losses::cross_entropy(y, Tensor::zeros({2, 2, 2}, DType::i64), {Tensor::zeros({2})});
              }),
              HasSubstr("there are 3 classes"));
  EXPECT_THAT(error_text([&] { return losses::dice(outputs(), truth()); }), HasSubstr("use [N, C, ..]"));
}

}  // namespace
}  // namespace fq::losses_test
