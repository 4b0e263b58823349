#include <cmath>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/train/losses.h"
#include "fakequant/train/metrics.h"

namespace fq::ctc_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSamples = 3, kClasses = 5, kPlaces = 7;

Tensor outputs(DType dtype = DType::f64) {
  std::vector<double> values(kSamples * kClasses * kPlaces);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 2 * std::sin(0.37 * double(i) + 0.01 * double(i * i % 17));
  return Tensor::from(values, {kSamples, kClasses, kPlaces}).to(dtype);
}

/// Repeats, a full row and one without labels.
Tensor labels() { return Tensor::from<std::int64_t>({1, 1, 2, -1, 4, 3, 2, 1, -1, -1, -1, -1}, {3, 4}); }

struct Found {
  double loss, gradient;
};

Found found(const Tensor& of, const losses::CtcOptions& options = {}) {
  const Variable y(outputs(), true);
  const Variable loss = losses::ctc(y, of, options);
  loss.backward();
  double squares = 0;
  for (const double g : y.grad().to_vector<double>()) squares += g * g;
  return {loss.item(), std::sqrt(squares)};
}

/// The mean over all placements of labels, one by one.
double enumerate_alignments(const Tensor& y, std::int64_t sample, const std::vector<std::int64_t>& target,
                            std::int64_t blank) {
  const auto values = y.to_vector<double>();
  const auto at = [&](std::int64_t c, std::int64_t t) {
    return values[static_cast<std::size_t>((sample * kClasses + c) * kPlaces + t)];
  };
  double all = 0;
  std::vector<std::int64_t> way(kPlaces, 0);
  const std::function<void(std::int64_t, double)> place = [&](std::int64_t t, double p) {
    if (t == kPlaces) {
      std::vector<std::int64_t> read;
      for (std::size_t i = 0; i < way.size(); ++i)
        if (way[i] != blank && (i == 0 || way[i] != way[i - 1])) read.push_back(way[i]);
      all += read == target ? p : 0;
      return;
    }
    double sum = 0;
    for (std::int64_t c = 0; c < kClasses; ++c) sum += std::exp(at(c, t));
    for (std::int64_t c = 0; c < kClasses; ++c) {
      way[static_cast<std::size_t>(t)] = c;
      place(t + 1, p * std::exp(at(c, t)) / sum);
    }
  };
  place(0, 1);
  return -std::log(all);
}

TEST(Ctc, SumsOverAllAlignments) {
  for (const std::int64_t blank : {0, 4}) {
    const Tensor target = Tensor::from<std::int64_t>({1, 1, 2, 3, 1, -1, -1, -1, -1}, {3, 3});
    const double mean = (enumerate_alignments(outputs(), 0, {1, 1, 2}, blank) / 3 +
                         enumerate_alignments(outputs(), 1, {3, 1}, blank) / 2 +
                         enumerate_alignments(outputs(), 2, {}, blank)) /
                        3;
    EXPECT_NEAR(found(target, {.blank = blank}).loss, mean, 1e-12) << blank;
  }
}

/// ctc_loss(log_softmax(y.permute(2, 0, 1), 2), labels, lengths, label lengths) in f64, with its defaults,
/// and with blank=3 of other labels, lengths [7, 6, 4], zero_infinity=True: a sample of 4 labels in 4 places
/// with a repeat.
TEST(Ctc, MatchesPyTorch) {
  const Found plain = found(labels());
  EXPECT_NEAR(plain.loss, 4.020463107412, 1e-11);
  EXPECT_NEAR(plain.gradient, 0.720560311672, 1e-11);
  const Tensor others = Tensor::from<std::int64_t>({0, 0, 2, -1, 4, 1, 2, 1, 0, 0, 1, 2}, {3, 4});
  losses::CtcOptions options{
      .blank = 3, .lengths = Tensor::from<std::int64_t>({7, 6, 4}, {3}), .zero_infinity = true};
  const Found cut = found(others, options);
  EXPECT_NEAR(cut.loss, 1.417346465572, 1e-11);
  EXPECT_NEAR(cut.gradient, 0.185078102613, 1e-11);
}

TEST(Ctc, IsInfiniteForLabelsThatDoNotFit) {
  const losses::CtcOptions options{.lengths = Tensor::from<std::int64_t>({7, 7, 3}, {3})};
  const Tensor target = Tensor::from<std::int64_t>({1, -1, -1, 2, -1, -1, 1, 1, 2}, {3, 3});
  EXPECT_EQ(found(target, options).loss, std::numeric_limits<double>::infinity());
}

TEST(Ctc, GradientMatchesFiniteDifferences) {
  const losses::CtcOptions options{.blank = 2, .lengths = Tensor::from<std::int64_t>({7, 6, 5}, {3})};
  const Tensor target = Tensor::from<std::int64_t>({1, 1, 0, -1, 4, 3, 0, 1, 0, -1, -1, -1}, {3, 4});
  const Variable y(outputs(), true);
  ops::scale(losses::ctc(y, target, options), 3.0).backward();
  const auto gradient = y.grad().to_vector<double>();
  auto values = outputs().to_vector<double>();
  constexpr double step = 1e-5;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = [&](double moved) {
      auto changed = values;
      changed[i] += moved;
      return 3 * losses::ctc(Variable(Tensor::from(changed, y.shape())), target, options).item();
    };
    EXPECT_NEAR(gradient[i], (at(step) - at(-step)) / (2 * step), 1e-8) << i;
  }
}

TEST(Ctc, FloatMatchesDouble) {
  const Variable y(outputs(DType::f32), true);
  const Variable loss = losses::ctc(y, labels());
  loss.backward();
  EXPECT_EQ(y.grad().dtype(), DType::f32);
  EXPECT_NEAR(loss.item(), found(labels()).loss, 1e-6);
}

TEST(Ctc, IgnoresPaddingAtRowEnds) {
  const auto rows = label_rows(Tensor::from<std::uint8_t>({1, 0, 255, 2, 3, 255}, {2, 3}), 5, 0, 255);
  EXPECT_EQ(rows, (std::vector<std::vector<std::int64_t>>{{1}, {2, 3}}));
  EXPECT_EQ(label_rows(Tensor::from<std::int64_t>({1, 2}, {2}), 5).at(1), std::vector<std::int64_t>{2});
  const auto expect_error = [](const Tensor& y, const char* why) {
    try {
      (void)label_rows(y, 5);
      ADD_FAILURE() << why;
    } catch (const ArgumentError& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  };
  expect_error(Tensor::from<std::int64_t>({1, -1, 2}, {1, 3}), "sample 0 has the label 2 after padding");
  expect_error(Tensor::from<std::int64_t>({1, 2, 3, 5}, {2, 2}), "label 5 of sample 1 is not 0 to 4");
  expect_error(Tensor::from({1.0F}, {1, 1}), "use integers");
}

TEST(Ctc, RejectsOtherShapes) {
  const Tensor y = outputs();
  EXPECT_THROW((void)losses::ctc(Variable(y.reshape({kSamples, kClasses * kPlaces})), labels()),
               ArgumentError);
  EXPECT_THROW((void)losses::ctc(Variable(y), Tensor::from<std::int64_t>({1, 2}, {2, 1})), ArgumentError);
  EXPECT_THROW((void)losses::ctc(Variable(y), labels(), {.blank = 5}), ArgumentError);
  EXPECT_THROW(
      (void)losses::ctc(Variable(y), labels(), {.lengths = Tensor::from<std::int64_t>({8, 1, 1}, {3})}),
      ArgumentError);
}

TEST(Ctc, LossNamesTheSampleThatDoesNotFit) {
  LossOptions options{.kind = "ctc"};
  const Tensor many = Tensor::from<std::int64_t>({1, 2, 3, 4, 1, 1, 1, 1, 2, 3, 3, 3}, {2, 6});
  const Variable y(Tensor::zeros({2, 5, 7}));
  try {
    (void)make_loss(options)(y, many);
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the 6 labels of sample 1 of the batch require 9 positions"));
  }
  options.zero_infinity = true;
  EXPECT_TRUE(std::isfinite(make_loss(options)(y, many).item()));
  options.blank = -1;
  EXPECT_THROW((void)make_loss(options), ArgumentError);
}

Tensor make_alignments(const std::vector<std::vector<std::int64_t>>& ways, std::int64_t classes) {
  const auto places = static_cast<std::int64_t>(ways[0].size());
  Tensor out = Tensor::zeros({static_cast<std::int64_t>(ways.size()), classes, places});
  auto* values = out.mutable_data<float>();
  for (std::size_t n = 0; n < ways.size(); ++n)
    for (std::int64_t t = 0; t < places; ++t)
      values[(static_cast<std::int64_t>(n) * classes + ways[n][static_cast<std::size_t>(t)]) * places + t] =
          1;
  return out;
}

TEST(Ctc, DecodingRemovesRepeatsAndBlanks) {
  const Tensor read = ctc_decode(make_alignments({{1, 1, 0, 1, 2, 2}, {0, 0, 0, 0, 0, 3}}, 4));
  EXPECT_EQ(read.to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{1, 1, 2, -1, -1, -1, 3, -1, -1, -1, -1, -1}));
  EXPECT_EQ(ctc_decode(make_alignments({{3, 0, 0, 3}}, 4), 3).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{0, -1, -1, -1}));
}

TEST(Ctc, EditDistanceIsMinimal) {
  EXPECT_EQ(edit_distance({}, {}), 0);
  EXPECT_EQ(edit_distance({1, 2, 3}, {}), 3);
  EXPECT_EQ(edit_distance({11, 9, 20, 20, 5, 14}, {19, 9, 20, 20, 9, 14, 7}), 3);  // kitten, sitting
  EXPECT_EQ(edit_distance({1, 2, 3, 4}, {2, 3, 4, 1}), 2);
}

TEST(Ctc, MetricsCountLabelsAndSequences) {
  const auto rate = make_metric("ler"), exact = make_metric("exact"), last = make_metric("ler3");
  const Tensor y = make_alignments({{1, 0, 2, 2}, {0, 3, 0, 0}}, 4),
               target = Tensor::from<std::int64_t>({1, 2, 3, 1}, {2, 2});
  for (const auto& metric : {rate.get(), exact.get()}) metric->add(y, target);
  EXPECT_DOUBLE_EQ(rate->value(), 0.25);
  EXPECT_DOUBLE_EQ(exact->value(), 0.5);
  last->add(make_alignments({{3, 1, 3, 0}}, 4), Tensor::from<std::int64_t>({1, 0}, {1, 2}));
  EXPECT_EQ(last->value(), 0);
  EXPECT_FALSE(higher_is_better("ler"));
  EXPECT_FALSE(higher_is_better("ler3"));
  EXPECT_TRUE(higher_is_better("exact"));
  EXPECT_TRUE(std::isnan(make_metric("ler")->value()));
  EXPECT_THROW(make_metric("ler")->add(Tensor::zeros({2, 3}), target), ArgumentError);
}

}  // namespace
}  // namespace fq::ctc_test
