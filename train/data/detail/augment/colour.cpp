#include "fakequant/train/data/detail/augment/colour.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "fakequant/train/data/detail/augment/operations.h"

namespace fq::detail {
namespace {

// Weights of ITU-R BT.601, as in torchvision's rgb_to_grayscale.
float grey(float r, float g, float b) { return 0.2989f * r + 0.587f * g + 0.114f * b; }

float grey_value(const AugmentedSample& image, std::int64_t i) {
  return grey(image.plane(0)[i], image.plane(1)[i], image.plane(2)[i]);
}

// torchvision's _blend: factor 0 gives `other`, 1 gives x, and more than 1 moves x away from `other`.
float blend(float x, float other, double factor) {
  const auto f = static_cast<float>(factor);
  return std::clamp(f * x + (1 - f) * other, 0.0f, 1.0f);
}

std::span<float> image_values(const AugmentedSample& image) {
  return {image.values, static_cast<std::size_t>(numel(image.shape))};
}

struct Hsv {
  float h, s, v;
};

// torchvision's _rgb2hsv. The +1 before fmod makes a negative hue positive.
Hsv to_hsv(float r, float g, float b) {
  const float most = std::max({r, g, b}), least = std::min({r, g, b}), range = most - least;
  if (range == 0) return {0, 0, most};
  const float red = (most - r) / range, green = (most - g) / range, blue = (most - b) / range;
  const float sixths = most == r ? blue - green : most == g ? 2 + red - blue : 4 + green - red;
  return {std::fmod(sixths / 6 + 1, 1.0f), range / most, most};
}

std::array<float, 3> to_rgb(const Hsv& c) {
  const float sector = std::floor(c.h * 6), f = c.h * 6 - sector;
  const auto unit = [](float x) { return std::clamp(x, 0.0f, 1.0f); };
  const float p = unit(c.v * (1 - c.s)), q = unit(c.v * (1 - c.s * f)), t = unit(c.v * (1 - c.s * (1 - f)));
  switch (static_cast<int>(sector) % 6) {
    case 0:
      return {c.v, t, p};
    case 1:
      return {q, c.v, p};
    case 2:
      return {p, c.v, t};
    case 3:
      return {p, q, c.v};
    case 4:
      return {t, p, c.v};
    default:
      return {c.v, p, q};
  }
}

// Rounds half to even, as torch.round.
int to_byte(float x) { return static_cast<int>(std::nearbyint(255 * std::clamp(x, 0.0f, 1.0f))); }

/// Returns the new value of each byte. Returns the identity if there are too few pixels to spread.
std::array<int, 256> flat_histogram(const float* plane, std::int64_t count) {
  std::array<std::int64_t, 256> histogram{};
  for (std::int64_t i = 0; i < count; ++i) ++histogram[static_cast<std::size_t>(to_byte(plane[i]))];
  // PIL's ImageOps.equalize: the last bin that is not empty does not count for the step.
  const auto last = std::find_if(histogram.rbegin(), histogram.rend(), [](auto n) { return n != 0; });
  const std::int64_t step = last == histogram.rend() ? 0 : (count - *last) / 255;
  // out[i] depends on the pixels darker than i only, so that the darkest value stays 0.
  std::array<int, 256> out{};
  std::int64_t below = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = step == 0
                 ? static_cast<int>(i)
                 : static_cast<int>(std::min<std::int64_t>((below + (i == 0 ? 0 : step / 2)) / step, 255));
    below += histogram[i];
  }
  return out;
}

// Returns a random factor of at most `limit` from 1, not negative. Each purpose has a random stream of its
// own, so that the numbers of an operation do not depend on other operations.
double factor(const AugmentedSample& image, const char* purpose, double limit) {
  return image.draws(purpose).uniform(std::max(0.0, 1 - limit), 1 + limit);
}

}  // namespace

UnitScope::UnitScope(AugmentedSample& image) : image_(image) {
  for (std::int64_t c = 0; c < image.channels(); ++c) {
    const float black = image.black[static_cast<std::size_t>(c)];
    const float span = image.white[static_cast<std::size_t>(c)] - black;
    for (std::int64_t i = 0; i < image.inner(); ++i)
      image.plane(c)[i] = std::clamp((image.plane(c)[i] - black) / span, 0.0f, 1.0f);
  }
}

UnitScope::~UnitScope() {
  for (std::int64_t c = 0; c < image_.channels(); ++c) {
    const float black = image_.black[static_cast<std::size_t>(c)];
    const float span = image_.white[static_cast<std::size_t>(c)] - black;
    for (std::int64_t i = 0; i < image_.inner(); ++i) image_.plane(c)[i] = image_.plane(c)[i] * span + black;
  }
}

void adjust_brightness(AugmentedSample& image, double factor) {
  for (float& x : image_values(image)) x = blend(x, 0, factor);
}

void adjust_contrast(AugmentedSample& image, double factor) {
  double sum = 0;
  if (image.channels() == 3)
    for (std::int64_t i = 0; i < image.inner(); ++i) sum += grey_value(image, i);
  else
    for (const float x : image_values(image)) sum += x;
  const auto count = image.channels() == 3 ? image.inner() : numel(image.shape);
  const auto mean = static_cast<float>(sum / static_cast<double>(count));
  for (float& x : image_values(image)) x = blend(x, mean, factor);
}

void adjust_saturation(AugmentedSample& image, double factor) {
  if (image.channels() != 3) return;
  for (std::int64_t i = 0; i < image.inner(); ++i) {
    const float other = grey_value(image, i);
    for (std::int64_t c = 0; c < 3; ++c) image.plane(c)[i] = blend(image.plane(c)[i], other, factor);
  }
}

void adjust_sharpness(AugmentedSample& image, double factor) {
  const std::int64_t height = image.height(), width = image.width();
  if (height <= 2 || width <= 2) return;
  for (std::int64_t c = 0; c < image.channels(); ++c) {
    // The kernel reads neighbours that the loop overwrites, so that it works on a copy.
    const std::vector<float> old(image.plane(c), image.plane(c) + image.inner());
    const auto at = [&](std::int64_t y, std::int64_t x) {
      return old[static_cast<std::size_t>(y * width + x)];
    };
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x) {
        float other = at(y, x);
        if (0 < y && y < height - 1 && 0 < x && x < width - 1) {
          // Kernel of torchvision: ones with a centre of 5, divided by 13.
          other *= 4;
          for (std::int64_t v = y - 1; v <= y + 1; ++v)
            for (std::int64_t u = x - 1; u <= x + 1; ++u) other += at(v, u);
          other /= 13;
        }
        image.plane(c)[y * width + x] = blend(at(y, x), other, factor);
      }
  }
}

void adjust_hue(AugmentedSample& image, double turns) {
  for (std::int64_t i = 0; i < image.inner(); ++i) {
    Hsv colour = to_hsv(image.plane(0)[i], image.plane(1)[i], image.plane(2)[i]);
    colour.h += static_cast<float>(turns);
    // The hue is periodic.
    colour.h -= std::floor(colour.h);
    const auto rgb = to_rgb(colour);
    for (std::int64_t c = 0; c < 3; ++c) image.plane(c)[i] = rgb[static_cast<std::size_t>(c)];
  }
}

void to_grey(AugmentedSample& image) {
  for (std::int64_t i = 0; i < image.inner(); ++i) {
    const float value = grey_value(image, i);
    for (std::int64_t c = 0; c < 3; ++c) image.plane(c)[i] = value;
  }
}

void posterize(AugmentedSample& image, int bits) {
  const int mask = 0xff & ~((1 << (8 - bits)) - 1);
  for (std::int64_t i = 0; i < numel(image.shape); ++i)
    image.values[i] = static_cast<float>(to_byte(image.values[i]) & mask) / 255;
}

void solarize(AugmentedSample& image, double threshold) {
  for (std::int64_t i = 0; i < numel(image.shape); ++i)
    if (static_cast<double>(image.values[i]) >= threshold) image.values[i] = 1 - image.values[i];
}

void autocontrast(AugmentedSample& image) {
  for (std::int64_t c = 0; c < image.channels(); ++c) {
    const auto [low, high] = std::minmax_element(image.plane(c), image.plane(c) + image.inner());
    const float least = *low, range = *high - *low;
    // A channel of one value has no range to stretch; torchvision leaves it, too.
    if (range == 0) continue;
    for (std::int64_t i = 0; i < image.inner(); ++i)
      image.plane(c)[i] = std::clamp((image.plane(c)[i] - least) / range, 0.0f, 1.0f);
  }
}

void equalize(AugmentedSample& image) {
  for (std::int64_t c = 0; c < image.channels(); ++c) {
    const auto table = flat_histogram(image.plane(c), image.inner());
    for (std::int64_t i = 0; i < image.inner(); ++i)
      image.plane(c)[i] =
          static_cast<float>(table[static_cast<std::size_t>(to_byte(image.plane(c)[i]))]) / 255;
  }
}

void change_brightness(AugmentedSample& image, const AugmentOptions& options) {
  const UnitScope units(image);
  adjust_brightness(image, factor(image, "brightness", options.brightness));
}

void change_contrast(AugmentedSample& image, const AugmentOptions& options) {
  const UnitScope units(image);
  adjust_contrast(image, factor(image, "contrast", options.contrast));
}

void change_saturation(AugmentedSample& image, const AugmentOptions& options) {
  const UnitScope units(image);
  adjust_saturation(image, factor(image, "saturation", options.saturation));
}

void change_hue(AugmentedSample& image, const AugmentOptions& options) {
  const UnitScope units(image);
  adjust_hue(image, image.draws("hue").symmetric() * options.hue);
}

void change_to_grey(AugmentedSample& image, const AugmentOptions& options) {
  if (image.draws("greyscale").uniform() >= options.greyscale) return;
  const UnitScope units(image);
  to_grey(image);
}

}  // namespace fq::detail
