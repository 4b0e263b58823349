#include <set>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/data/augment.h"
#include "train/torchvision_values.h"

namespace fq::augment_crop_test {
namespace {

std::vector<float> changed(std::vector<float> x, const Shape& sample, const AugmentOptions& options,
                           std::int64_t key, float outside = 0) {
  Shape shape{1};
  shape.insert(shape.end(), sample.begin(), sample.end());
  Tensor image = Tensor::from(x, shape);
  const std::vector<std::int64_t> keys{key};
  augment(image, keys, options, 1, 0, std::vector<float>(static_cast<std::size_t>(sample[0]), outside));
  return image.to_vector<float>();
}

std::vector<float> ramp(int count) {
  std::vector<float> x;
  for (int i = 0; i < count; ++i) x.push_back(static_cast<float>(i * 37 % 101) / 100);
  return x;
}

TEST(AugmentCrop, ShiftsByWholePixelsAndFillsWithTheBackground) {
  const auto x = ramp(12);
  std::set<std::pair<int, int>> seen;
  for (std::int64_t key = 0; key < 200; ++key) {
    const auto out = changed(x, {1, 3, 4}, {.crop = 1}, key, -5);
    int found = 0;
    for (int dy = -1; dy <= 1; ++dy)
      for (int dx = -1; dx <= 1; ++dx) {
        bool same = true;
        for (int y = 0; y < 3; ++y)
          for (int u = 0; u < 4; ++u) {
            const int v = y + dy, w = u + dx;
            const bool inside = 0 <= v && v < 3 && 0 <= w && w < 4;
            same &= out[static_cast<std::size_t>(y * 4 + u)] ==
                    (inside ? x[static_cast<std::size_t>(v * 4 + w)] : -5.0f);
          }
        if (same) seen.insert({dy, dx}), ++found;
      }
    EXPECT_EQ(found, 1);
  }
  EXPECT_EQ(seen.size(), 9u);
}

// A part of the whole area in the image's own ratio is the image; a plane stays a plane of smaller slope.
TEST(AugmentCrop, ResizedCropOfTheWholeImageIsIdentity) {
  const auto x = ramp(60);
  EXPECT_EQ(changed(x, {3, 4, 5}, {.resized_crop = 1, .ratio_low = 1.25, .ratio_high = 1.25}, 3), x);
}

TEST(AugmentCrop, ResizedCropHasTheRequestedAreaAndRatio) {
  const int side = 40;
  std::vector<float> x;
  for (int y = 0; y < side; ++y)
    for (int u = 0; u < side; ++u) x.push_back(static_cast<float>(u + 1000 * y));
  double smallest = 1, largest = 0;
  for (std::int64_t key = 0; key < 200; ++key) {
    const auto out =
        changed(x, {1, side, side},
                {.resized_crop = 0.2, .resized_crop_most = 0.6, .ratio_low = 0.5, .ratio_high = 2}, key);
    const auto at = [&](int y, int u) {
      return static_cast<double>(out[static_cast<std::size_t>(y * side + u)]);
    };
    const double wide = at(20, 21) - at(20, 20), high = (at(21, 20) - at(20, 20)) / 1000;
    smallest = std::min(smallest, wide * high), largest = std::max(largest, wide * high);
    EXPECT_GT(wide / high, 0.5 * 0.93);  // sides are whole pixels
    EXPECT_LT(wide / high, 2 * 1.07);
  }
  EXPECT_NEAR(smallest, 0.2, 0.03);
  EXPECT_NEAR(largest, 0.6, 0.03);
}

// Some of the 50 keys draw torchvision's crop [1:3, 2:5] of the image.
TEST(AugmentCrop, InterpolatesLikeTorchvision) {
  bool found = false;
  for (std::int64_t key = 0; key < 400 && !found; ++key) {
    const auto out =
        changed(ramp(60), {3, 4, 5},
                {.resized_crop = 0.3, .resized_crop_most = 0.3, .ratio_low = 1.5, .ratio_high = 1.5}, key);
    found = true;
    for (std::size_t i = 0; i < out.size(); ++i)
      found &= std::abs(out[i] - test::torchvision::k_resized_crop[i]) < 2e-6f;
  }
  EXPECT_TRUE(found);
}

TEST(AugmentCrop, FlipsOfProbabilityOneAreMirrors) {
  const std::vector<float> x{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(changed(x, {1, 2, 3}, {.hflip = 1}, 4), (std::vector<float>{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(changed(x, {1, 2, 3}, {.vflip = 1}, 4), (std::vector<float>{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(changed(x, {1, 3, 2}, {.vflip = 1}, 4), (std::vector<float>{5, 6, 3, 4, 1, 2}));
}

TEST(AugmentCrop, BlurKeepsTheMeanOfAnEvenImageAndSpreadsAPoint) {
  const auto even = changed(std::vector<float>(30, 0.7f), {1, 5, 6}, {.blur = 2}, 1);
  for (const float v : even) EXPECT_NEAR(v, 0.7f, 1e-6);
  std::vector<float> point(25 * 25, 0.0f);
  point[12 * 25 + 12] = 1;
  const auto out = changed(point, {1, 25, 25}, {.blur = 1.5}, 7);
  double sum = 0, squares = 0;
  for (int y = 0; y < 25; ++y)
    for (int u = 0; u < 25; ++u) {
      const double v = static_cast<double>(out[static_cast<std::size_t>(y * 25 + u)]);
      sum += v, squares += v * (u - 12) * (u - 12);
    }
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_LT(squares, 1.5 * 1.5);  // sigma is at most 1.5, and the tails are cut
  EXPECT_GT(squares, 0.01);
}

TEST(AugmentCrop, RejectsInvalidOptionsByName) {
  const auto error_text = [](const AugmentOptions& options, const Shape& shape,
                             bool ids = false) -> std::string {
    try {
      check(options, shape, ids);
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(
      error_text({.rotation = 5}, {8}).find("rows of features, which have no rotate: use noise, drop, mixup"),
      std::string::npos);
  EXPECT_NE(error_text({.gain = 0.1}, {1, 8, 8}).find("images [C, H, W], which have no gain"),
            std::string::npos);
  EXPECT_NE(error_text({.cutmix = 1}, {8}).find("no cutmix"), std::string::npos);
  EXPECT_NE(error_text({.mixup = 1}, {8}, true).find("token ids, which have no mixup: use drop"),
            std::string::npos);
  EXPECT_NE(error_text({.hue = 0.1}, {1, 8, 8}).find("images of 1 channels: hue is of red"),
            std::string::npos);
  EXPECT_NE(error_text({.hue = 0.6}, {3, 8, 8}).find("hue is 0.6: use 0 to 0.5"), std::string::npos);
  EXPECT_NE(error_text({.crop = 1.5}, {3, 8, 8}).find("crop is 1.5: use a whole number"), std::string::npos);
  EXPECT_NE(error_text({.resized_crop = 0.9, .resized_crop_most = 0.5}, {3, 8, 8}).find("smaller one first"),
            std::string::npos);
  EXPECT_EQ(error_text({.shift = 2, .noise = 0.1}, {3, 100}), "");
}

}  // namespace
}  // namespace fq::augment_crop_test
