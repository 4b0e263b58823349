#include <algorithm>
#include <cmath>

#include "fakequant/train/data/detail/augment/operations.h"

namespace fq::detail {
namespace {

constexpr double kLeastSigma = 0.1;

/// Returns the weights from the centre on. The sum over both sides is 1.
std::vector<float> gaussian(double sigma, std::int64_t radius) {
  std::vector<float> half;
  double sum = 0;
  for (std::int64_t i = 0; i <= radius; ++i) {
    const double weight = std::exp(-0.5 * static_cast<double>(i * i) / (sigma * sigma));
    half.push_back(static_cast<float>(weight));
    sum += i == 0 ? weight : 2 * weight;
  }
  for (float& weight : half) weight = static_cast<float>(static_cast<double>(weight) / sum);
  return half;
}

/// Blurs one line of `size` elements with distance `step`. Mirrors positions outside about the edge.
void blur_line(float* line, std::int64_t size, std::int64_t step, double sigma) {
  // Three sigmas hold 99.7 % of the weight. A short line limits the radius, so that mirrored positions exist.
  const auto wide = static_cast<std::int64_t>(std::ceil(3 * sigma));
  const auto half = gaussian(sigma, std::min(wide, size - 1));
  std::vector<float> old(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) old[static_cast<std::size_t>(i)] = line[i * step];
  const auto at = [&](std::int64_t i) {
    const std::int64_t mirrored = i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
    return old[static_cast<std::size_t>(mirrored)];
  };
  for (std::int64_t i = 0; i < size; ++i) {
    float sum = half[0] * at(i);
    for (std::int64_t k = 1; k < std::ssize(half); ++k)
      sum += half[static_cast<std::size_t>(k)] * (at(i - k) + at(i + k));
    line[i * step] = sum;
  }
}

}  // namespace

void change_by_blur(AugmentedSample& image, const AugmentOptions& options) {
  const double sigma = image.draws("blur").uniform(std::min(kLeastSigma, options.blur), options.blur);
  const std::int64_t height = image.height(), width = image.width();
  for (std::int64_t c = 0; c < image.channels(); ++c) {
    // A Gaussian is separable: rows, then columns.
    for (std::int64_t y = 0; y < height; ++y) blur_line(image.plane(c) + y * width, width, 1, sigma);
    for (std::int64_t x = 0; x < width; ++x) blur_line(image.plane(c) + x, height, width, sigma);
  }
}

}  // namespace fq::detail
