#include <gtest/gtest.h>

#include "fakequant/train/data/detail/augment/colour.h"
#include "fakequant/train/data/detail/augment/operations.h"
#include "train/torchvision_values.h"

namespace fq::augment_colour_test {
namespace {

using detail::AugmentedSample;

struct Image {
  std::vector<float> black, white, values;
  AugmentedSample sample;

  Image(Shape shape, std::vector<float> of, float low = 0, float high = 1)
      : black(static_cast<std::size_t>(shape[0]), low),
        white(static_cast<std::size_t>(shape[0]), high),
        values(std::move(of)),
        sample{.shape = shape,
               .black = black,
               .white = white,
               .seed = 1,
               .epoch = 0,
               .key = 3,
               .values = values.data()} {}
  Image(const Image&) = delete;
};

std::vector<float> ramp() {
  std::vector<float> x;
  for (int i = 0; i < 60; ++i) x.push_back(static_cast<float>(i * 37 % 101) / 100);
  return x;
}

template <class Expected, class Change>
void expect_result(const Expected& expected, Change change, std::vector<float> x = ramp()) {
  Image image({3, 4, 5}, std::move(x));
  change(image.sample);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(image.values[i], expected[i], 2e-6) << i;
}

TEST(AugmentColour, MatchesTorchvision) {
  namespace tv = test::torchvision;
  expect_result(tv::k_brightness, [](auto& x) { detail::adjust_brightness(x, 1.4); });
  expect_result(tv::k_contrast, [](auto& x) { detail::adjust_contrast(x, 0.3); });
  expect_result(tv::k_saturation, [](auto& x) { detail::adjust_saturation(x, 1.7); });
  expect_result(tv::k_sharpness, [](auto& x) { detail::adjust_sharpness(x, 1.9); });
  expect_result(tv::k_hue, [](auto& x) { detail::adjust_hue(x, 0.2); });
  expect_result(tv::k_grey, [](auto& x) { detail::to_grey(x); });
  expect_result(tv::k_posterize, [](auto& x) { detail::posterize(x, 3); });
  expect_result(tv::k_solarize, [](auto& x) { detail::solarize(x, 0.5); });
  auto half = ramp();
  for (float& x : half) x = x * 0.5f + 0.1f;
  expect_result(
      tv::k_autocontrast, [](auto& x) { detail::autocontrast(x); }, half);
}

TEST(AugmentColour, EqualizeMatchesTorchvision) {
  std::vector<float> x;
  for (int i = 0; i < 400; ++i) x.push_back(static_cast<float>(i * i * 7 % 90 + i * 13 % 40) / 255);
  Image image({1, 20, 20}, x);
  detail::equalize(image.sample);
  for (std::size_t i = 0; i < 400; ++i)
    EXPECT_EQ(std::lround(image.values[i] * 255), test::torchvision::k_equalize[i]) << i;
}

TEST(AugmentColour, FactorOneAndZeroHueChangeNothing) {
  const auto same = [](auto change) { expect_result(ramp(), change); };
  same([](auto& x) { detail::adjust_brightness(x, 1); });
  same([](auto& x) { detail::adjust_contrast(x, 1); });
  same([](auto& x) { detail::adjust_saturation(x, 1); });
  same([](auto& x) { detail::adjust_sharpness(x, 1); });
  same([](auto& x) { detail::adjust_hue(x, 0); });
}

// Brightness of pixels from -1 to 3 is computed on values from 0 to 1.
TEST(AugmentColour, UsesBlackAndWhiteLevels) {
  auto x = ramp();
  Image unit({3, 4, 5}, x);
  for (float& v : x) v = v * 4 - 1;
  Image other({3, 4, 5}, x, -1, 3);
  const AugmentOptions options{.brightness = 0.5};
  detail::change_brightness(unit.sample, options);
  detail::change_brightness(other.sample, options);
  EXPECT_NE(unit.values, ramp());
  for (std::size_t i = 0; i < 60; ++i) EXPECT_NEAR(other.values[i], unit.values[i] * 4 - 1, 4e-6);
}

TEST(AugmentColour, RandaugmentOfMagnitudeZeroKeepsTheImage) {
  EXPECT_EQ(randaugment_operations().size(), 14u);
  // An image that autocontrast and equalize leave alone too: black, white, and too few bytes to spread.
  std::vector<float> x(60, 0.0f);
  for (std::size_t i = 0; i < 60; i += 2) x[i] = 1;
  const AugmentOptions options{.randaugment = 5, .randaugment_magnitude = 0};
  for (std::int64_t key = 0; key < 50; ++key) {
    Image image({3, 4, 5}, x);
    image.sample.key = key;
    detail::change_by_randaugment(image.sample, options);
    for (std::size_t i = 0; i < 60; ++i) ASSERT_NEAR(image.values[i], x[i], 1e-6) << key;
  }
}

TEST(AugmentColour, RandaugmentKeepsValuesBetweenBlackAndWhite) {
  const AugmentOptions options{.randaugment = 3, .randaugment_magnitude = 30};
  int changed = 0;
  for (std::int64_t key = 0; key < 200; ++key) {
    auto x = ramp();
    for (float& v : x) v = v * 4 - 1;
    Image image({3, 4, 5}, x, -1, 3);
    image.sample.key = key;
    detail::change_by_randaugment(image.sample, options);
    changed += image.values != x;
    for (const float v : image.values) ASSERT_TRUE(-1.00001f <= v && v <= 3.00001f) << v;
  }
  EXPECT_GT(changed, 190);
}

}  // namespace
}  // namespace fq::augment_colour_test
