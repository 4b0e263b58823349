#include <gmock/gmock.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/losses.h"
#include "train/loop_run.h"

namespace fq::make_loss_test {
namespace {

using ::testing::HasSubstr;

Variable outputs(const Shape& shape) {
  Tensor y = Tensor::empty(shape);
  fill_uniform(y, -2, 2, 7);
  return Variable(y);
}
Tensor labels(std::vector<std::int64_t> values, const Shape& shape) { return Tensor::from(values, shape); }

std::string message(const LossOptions& options) {
  try {
    (void)make_loss(options);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MakeLoss, CreatesTheNamedLoss) {
  const Variable y = outputs({3, 2});
  const Tensor t = Tensor::from(std::vector<float>{0, 1, 1, 0, 0, 1}, {3, 2});
  EXPECT_EQ(make_loss({.kind = "mse"})(y, t).item(), losses::mse(y, t).item());
  EXPECT_EQ(make_loss({.kind = "l1"})(y, t).item(), losses::l1(y, t).item());
  EXPECT_EQ(make_loss({.kind = "huber", .delta = 0.5})(y, t).item(), losses::huber(y, t, 0.5).item());
  EXPECT_EQ(make_loss({.kind = "bce"})(y, t).item(), losses::bce_with_logits(y, t).item());
  EXPECT_EQ(make_loss({.kind = "bce", .positive_weight = 3})(y, t).item(),
            losses::bce_with_logits(y, t, {}, Tensor::full({}, 3)).item());
  EXPECT_EQ(make_loss({.kind = "focal", .alpha = 0.5, .gamma = 1})(y, t).item(),
            losses::focal(y, t, 0.5, 1).item());
  const Variable image = outputs({2, 1, 3});
  const Tensor mask = Tensor::from(std::vector<float>{0, 1, 1, 0, 0, 1}, {2, 1, 3});
  EXPECT_EQ(make_loss({.kind = "dice", .smooth = 2})(image, mask).item(),
            losses::dice(image, mask, 2).item());
}

TEST(MakeLoss, CrossEntropyAcceptsWeightsIgnoredAndDenseLabels) {
  const Variable y = outputs({4, 3});
  const Tensor t = labels({0, 2, 1, 2}, {4});
  EXPECT_EQ(make_loss({})(y, t).item(), ops::cross_entropy(y, t).item());
  EXPECT_EQ(make_loss({.label_smoothing = 0.1})(y, t).item(), ops::cross_entropy(y, t, 0.1).item());
  EXPECT_EQ(
      make_loss({.class_weights = {1, 2, 3}})(y, t).item(),
      losses::cross_entropy(y, t, {.class_weights = Tensor::from(std::vector<float>{1, 2, 3}, {3})}).item());
  EXPECT_EQ(make_loss({.ignore_index = 2})(y, t).item(),
            losses::cross_entropy(y, t, {.ignore_index = 2}).item());
  const Variable places = outputs({2, 3, 2});
  EXPECT_EQ(make_loss({})(places, t.reshape({2, 2})).item(),
            losses::cross_entropy(places, t.reshape({2, 2}), {}).item());
}

TEST(MakeLoss, ConvertsLabels) {
  const Variable one = outputs({3, 1});
  const Tensor column = Tensor::from(std::vector<float>{1, 0, 1}, {3, 1});
  for (const char* kind : {"mse", "l1", "huber", "bce", "focal"}) {
    const auto loss = make_loss({.kind = kind});
    EXPECT_EQ(loss(one, labels({1, 0, 1}, {3})).item(), loss(one, column).item()) << kind;
    EXPECT_EQ(loss(one, column.to(DType::f64)).item(), loss(one, column).item()) << kind;
  }
  const Variable three = outputs({2, 3});
  const Tensor hot = Tensor::from(std::vector<float>{0, 0, 1, 1, 0, 0}, {2, 3});
  for (const char* kind : {"bce", "focal"}) {
    const auto loss = make_loss({.kind = kind});
    EXPECT_EQ(loss(three, labels({2, 0}, {2})).item(), loss(three, hot).item()) << kind;
  }
  const Variable image = outputs({1, 2, 3});
  const Tensor mask = Tensor::from(std::vector<float>{1, 0, 1, 0, 1, 0}, {1, 2, 3});
  EXPECT_EQ(make_loss({.kind = "dice"})(image, labels({0, 1, 0}, {1, 3})).item(),
            losses::dice(image, mask).item());
}

TEST(MakeLoss, RejectsUnknownNames) {
  EXPECT_THAT(message({.kind = "hubert"}), HasSubstr("did you mean 'huber'"));
  EXPECT_THAT(message({.class_weights = {1, -1}}), HasSubstr("0 or more"));
  EXPECT_THAT(message({.label_smoothing = 2}), HasSubstr("label_smoothing"));
  EXPECT_THAT(message({.kind = "huber", .delta = 0}), HasSubstr("delta"));
  EXPECT_THROW((void)make_loss({.kind = "mse"})(outputs({3, 2}), labels({0, 1, 1}, {3})), ArgumentError);
  EXPECT_THROW((void)make_loss({.kind = "bce"})(outputs({2, 3}), labels({0, 3}, {2})), ArgumentError);
}

Evaluation scored(double score, double loss) {
  Evaluation out;
  out.loss = loss;
  out.score = score;
  return out;
}

TEST(MakeLoss, FirstMetricSelectsTheBestEpoch) {
  const auto data = std::make_shared<TensorDataset>(outputs({40, 3}).tensor(), outputs({40, 2}).tensor());
  auto model = std::make_shared<Sequential>();
  model->add("out", std::make_shared<Linear>(3, 2));
  DataLoader all(data, {.batch_size = 16, .shuffle = false});
  const auto found = evaluate(*model, all, nullptr, make_loss({.kind = "mse"}), {"rmse", "r2"});
  ASSERT_EQ(found.metrics.size(), 2U);
  EXPECT_EQ(found.metrics[0].first, "rmse");
  EXPECT_EQ(found.score, -found.metrics[0].second);
  EXPECT_NEAR(found.metrics[0].second * found.metrics[0].second, found.loss, 1e-6);
  EXPECT_EQ(evaluate(*model, all, nullptr, make_loss({.kind = "mse"})).score, -found.loss);
  EXPECT_EQ(evaluate(*model, all, nullptr, make_loss({.kind = "mse"}), {"r2", "mae"}).score,
            found.metrics[1].second);
  EarlyStopping early(1);
  EXPECT_TRUE(early.update(scored(-2, 1)));
  EXPECT_FALSE(early.update(scored(-3, 0.5)));
  EXPECT_EQ(early.best_score(), -2);
  EarlyStopping again(1);
  again.load_state(early.state_dict());
  EXPECT_EQ(again.best_score(), -2);
  EXPECT_TRUE(again.update(scored(-1, 5)));
}

}  // namespace
}  // namespace fq::make_loss_test
