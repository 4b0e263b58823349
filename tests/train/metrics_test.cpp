#include "fakequant/train/metrics.h"

#include <cmath>
#include <cstdint>

#include <gmock/gmock.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/shape.h"

namespace fq::metrics_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kRows = 50, kClasses = 4;

/// The numbers that scikit-learn was given too.
std::vector<double> draws(std::int64_t count, std::uint64_t seed) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    out.push_back(static_cast<double>((seed >> 40) & 0xffffff) / (1 << 24));
  }
  return out;
}

template <class F>
Tensor drawn(const Shape& shape, std::uint64_t seed, F&& f) {
  auto values = draws(numel(shape), seed);
  for (double& value : values) value = f(value);
  return Tensor::from(values, shape);
}

Tensor outputs() {
  return drawn({kRows, kClasses}, 1, [](double u) { return std::floor(u * 64) / 8 - 4; });
}
Tensor classes() {
  return drawn({kRows}, 2, [](double u) { return std::floor(u * kClasses); }).to(DType::i64);
}
Tensor bits() {
  return drawn({kRows, kClasses}, 3, [](double u) { return u > 0.6 ? 1.0 : 0.0; });
}
Tensor numbers() {
  return drawn({kRows, kClasses}, 4, [](double u) { return u * 8 - 4; });
}

/// In two batches of different sizes.
double metric_value(const std::string& name, const Tensor& y, const Tensor& t) {
  const auto metric = make_metric(name);
  metric->add(y.slice(0, 13), t.slice(0, 13));
  metric->add(y.slice(13, y.dim(0)), t.slice(13, t.dim(0)));
  return metric->value();
}

// Numbers of scikit-learn 1.9.1: accuracy_score, top_k_accuracy_score, f1_score, balanced_accuracy_score,
// recall_score, jaccard_score, roc_auc_score (ovr), mean_absolute_error, mean_squared_error, r2_score.
TEST(Metrics, ClassMetricsMatchScikitLearn) {
  const Tensor y = outputs(), t = classes();
  EXPECT_DOUBLE_EQ(metric_value("accuracy", y, t), 0.22);
  EXPECT_DOUBLE_EQ(metric_value("top2", y, t), 0.44);
  EXPECT_DOUBLE_EQ(metric_value("f1", y, t), 0.21530977982590885);
  EXPECT_DOUBLE_EQ(metric_value("recall", y, t), 0.2277056277056277);
  EXPECT_DOUBLE_EQ(metric_value("iou", y, t), 0.12245370370370369);
  EXPECT_DOUBLE_EQ(metric_value("auc", y, t), 0.4611213092463093);
}

TEST(Metrics, BinaryMetricsMatchScikitLearn) {
  const Tensor y = outputs(), t = bits();
  EXPECT_DOUBLE_EQ(metric_value("accuracy", y, t), 0.515);
  EXPECT_DOUBLE_EQ(metric_value("f1", y, t), 0.45852063434943197);
  EXPECT_DOUBLE_EQ(metric_value("recall", y, t), 0.5008387445887446);
  EXPECT_DOUBLE_EQ(metric_value("iou", y, t), 0.2977369080310257);
  EXPECT_DOUBLE_EQ(metric_value("auc", y, t), 0.514534453122942);
}

TEST(Metrics, RegressionMetricsMatchScikitLearn) {
  const Tensor y = outputs(), t = numbers();
  EXPECT_DOUBLE_EQ(metric_value("mae", y, t), 2.653676946163177);
  EXPECT_DOUBLE_EQ(metric_value("rmse", y, t), 3.2630000299603013);
  EXPECT_NEAR(metric_value("r2", y, t), -0.9196804642388963, 1e-14);  // sums in another order
}

TEST(Metrics, DenseLabelsMatchPositionsInAnyOrder) {
  const Tensor y = outputs(), t = classes();
  const Tensor dense = ops::transpose(Variable(y.reshape({5, 10, kClasses})), {0, 2, 1}).tensor();
  for (const char* name : {"accuracy", "top2", "f1", "recall", "iou", "auc", "bpc", "perplexity"}) {
    const auto metric = make_metric(name);
    metric->add(dense, t.reshape({5, 10}));
    EXPECT_EQ(metric->value(), metric_value(name, y, t)) << name;
  }
}

TEST(Metrics, MatchTheSoftmaxBitwise) {
  const Tensor y = Tensor::from(std::vector<float>{0, 0, 0, 0, 1000, 0, 0, 0}, {2, 4});
  const Tensor t = Tensor::from(std::vector<std::int64_t>{3, 0}, {2});
  for (const char* name : {"bpc", "perplexity"}) {
    const auto metric = make_metric(name);
    metric->add(y, t);
    EXPECT_DOUBLE_EQ(metric->value(), name == std::string("bpc") ? 1 : 2) << name;  // of 2 bits, and none
  }
  EXPECT_FALSE(higher_is_better("bpc"));
}

TEST(Metrics, SkipInvalidLabels) {
  const Tensor y = Tensor::from(std::vector<float>{0, 1, 0, 1, 0, 1}, {3, 2});
  const Tensor t = Tensor::from(std::vector<std::int64_t>{1, 255, -100}, {3});
  for (const char* name : {"accuracy", "top1", "f1", "recall", "iou"}) {
    const auto metric = make_metric(name);
    metric->add(y, t);
    EXPECT_EQ(metric->value(), 1) << name;
  }
}

TEST(Metrics, OneOutputAcceptsLabelsWithoutItsAxis) {
  const Tensor y = Tensor::from(std::vector<float>{1, -1, 2}, {3, 1});
  for (const Shape& shape : {Shape{3}, Shape{3, 1}}) {
    const auto metric = make_metric("accuracy");
    metric->add(y, Tensor::from(std::vector<std::int64_t>{1, 0, 0}, shape));
    EXPECT_DOUBLE_EQ(metric->value(), 2.0 / 3);
  }
}

TEST(Metrics, UndefinedValuesAreNaN) {
  for (const char* name :
       {"accuracy", "top5", "f1", "recall", "iou", "auc", "bpc", "perplexity", "mae", "rmse", "r2"})
    EXPECT_TRUE(std::isnan(make_metric(name)->value())) << name;
  const auto area = make_metric("auc");
  area->add(Tensor::from(std::vector<float>{1, 2}, {2, 1}),
            Tensor::from(std::vector<std::int64_t>{1, 1}, {2}));
  EXPECT_TRUE(std::isnan(area->value()));
  const auto varies = make_metric("r2");
  varies->add(Tensor::from(std::vector<float>{1, 2}, {2, 1}), Tensor::from(std::vector<float>{3, 3}, {2, 1}));
  EXPECT_TRUE(std::isnan(varies->value()));
}

TEST(Metrics, NaNOutputsAreNoPrediction) {
  const float nan = std::nanf("");
  const auto metric = make_metric("top1"), accuracy = make_metric("accuracy");
  for (const auto* each : {&metric, &accuracy})
    (*each)->add(Tensor::from(std::vector<float>{nan, 0, 0, 1}, {2, 2}),
                 Tensor::from(std::vector<std::int64_t>{0, 1}, {2}));
  EXPECT_EQ(metric->value(), 0.5);
  EXPECT_EQ(accuracy->value(), 0.5);
}

TEST(Metrics, NameInvalidOptions) {
  const auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message([] { (void)make_metric("f2"); }),
              HasSubstr("there is no metric 'f2': did you mean 'f1'"));
  for (const char* name : {"top", "top0", "topx", "top99999999999999999999", ""})
    EXPECT_THAT(message([&] { (void)make_metric(name); }), HasSubstr("there is no metric")) << name;
  EXPECT_THAT(message([] { metric_value("rmse", outputs(), classes()); }),
              HasSubstr("use one shape for numbers"));
  EXPECT_THAT(message([] { metric_value("top2", outputs(), numbers()); }),
              HasSubstr("top2 requires classes"));
  EXPECT_THAT(message([] {
                metric_value("f1", outputs(), numbers().reshape({kRows, 2, 2}));
              }),
              HasSubstr("labels with the shape of the outputs"));
  EXPECT_TRUE(higher_is_better("top3") && higher_is_better("r2"));
  EXPECT_FALSE(higher_is_better("mae") || higher_is_better("rmse"));
}

}  // namespace
}  // namespace fq::metrics_test
