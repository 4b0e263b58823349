#include "fakequant/train/data/reader/images/resample.h"

#include <algorithm>
#include <cmath>

namespace fq::detail {
namespace {

/// The old samples that make one new one.
struct Window {
  std::int64_t begin = 0;
  std::vector<float> weights;
};

std::vector<Window> windows(std::int64_t from, std::int64_t to) {
  std::vector<Window> out(static_cast<std::size_t>(to));
  const double ratio = double(from) / double(to), reach = std::max(ratio, 1.0);
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (double(i) + 0.5) * ratio;
    const auto begin = std::max<std::int64_t>(0, std::int64_t(std::floor(centre - reach)));
    const auto end = std::min(from, std::int64_t(std::ceil(centre + reach)));
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t at = begin; at < end; ++at) {
      weights.push_back(std::max(0.0, 1 - std::abs(double(at) + 0.5 - centre) / reach));
      sum += weights.back();
    }
    Window& window = out[std::size_t(i)];
    window.begin = begin;
    for (const double weight : weights) window.weights.push_back(float(weight / sum));
  }
  return out;
}

/// One axis: [outer, from, inner] to [outer, to, inner].
std::vector<float> along(const std::vector<float>& image, std::int64_t outer, std::int64_t from,
                         std::int64_t to, std::int64_t inner) {
  std::vector<float> out(std::size_t(outer * to * inner));
  const auto chosen = windows(from, to);
  auto* at = out.data();
  for (std::int64_t o = 0; o < outer; ++o)
    for (const Window& window : chosen) {
      const float* base = image.data() + (o * from + window.begin) * inner;
      for (std::int64_t i = 0; i < inner; ++i, ++at) {
        float sum = 0;
        for (std::size_t k = 0; k < window.weights.size(); ++k)
          sum += window.weights[k] * base[std::int64_t(k) * inner + i];
        *at = sum;
      }
    }
  return out;
}

/// [x, x + width) and [y, y + height) of it; black outside.
Image cut(const Image& image, std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height) {
  const std::int64_t channels = image.info.channels;
  Image out{image.info, std::vector<std::uint16_t>(std::size_t(width * height * channels))};
  out.info.width = width;
  out.info.height = height;
  const std::int64_t first = std::max<std::int64_t>(0, -x), last = std::min(width, image.info.width - x);
  for (std::int64_t row = std::max<std::int64_t>(0, -y); row < std::min(height, image.info.height - y); ++row)
    std::copy_n(image.samples.begin() + ((row + y) * image.info.width + x + first) * channels,
                (last - first) * channels, out.samples.begin() + (row * width + first) * channels);
  return out;
}

Image middle(const Image& image, std::int64_t width, std::int64_t height) {
  const auto offset = [](std::int64_t all, std::int64_t part) {
    return std::int64_t(std::nearbyint(double(all - part) / 2));
  };
  return cut(image, offset(image.info.width, width), offset(image.info.height, height), width, height);
}

Image sized(const Image& image, const ImageForm& form) {
  const std::int64_t width = image.info.width, height = image.info.height;
  if (form.short_side > 0) {
    const auto longer = form.short_side * std::max(width, height) / std::min(width, height);
    const Image small =
        width < height ? resized(image, form.short_side, longer) : resized(image, longer, form.short_side);
    return middle(small, form.width, form.height);
  }
  if (form.fit == Fit::stretch) return resized(image, form.width, form.height);
  const double x = double(form.width) / double(width), y = double(form.height) / double(height);
  const double ratio = form.fit == Fit::crop ? std::max(x, y) : std::min(x, y);
  const auto side = [&](std::int64_t all, std::int64_t wanted, bool bounds) {
    return bounds ? wanted : std::max<std::int64_t>(1, std::llround(double(all) * ratio));
  };
  return middle(resized(image, side(width, form.width, ratio == x), side(height, form.height, ratio == y)),
                form.width, form.height);
}

std::uint16_t grey(const std::uint16_t* rgb) {
  return std::uint16_t((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000u) >> 16);
}

}  // namespace

Image resized(const Image& image, std::int64_t width, std::int64_t height) {
  if (image.info.width == width && image.info.height == height) return image;
  const std::int64_t channels = image.info.channels;
  std::vector<float> values(image.samples.begin(), image.samples.end());
  values = along(values, image.info.height, image.info.width, width, channels);
  values = along(values, 1, image.info.height, height, width * channels);
  Image out{image.info, std::vector<std::uint16_t>(values.size())};
  out.info.width = width;
  out.info.height = height;
  const auto most = float((1 << image.info.bits) - 1);
  std::ranges::transform(values, out.samples.begin(), [&](float value) {
    return std::uint16_t(std::clamp(std::nearbyint(value), 0.0f, most));
  });
  return out;
}

Image formed(Image image, const ImageForm& form) {
  if (form.width > 0) image = sized(image, form);
  const std::int64_t pixels = image.info.width * image.info.height, channels = image.info.channels;
  Image out{image.info, std::vector<std::uint16_t>(std::size_t(pixels * form.channels))};
  out.info.channels = form.channels;
  out.info.bits = form.bits;
  for (std::int64_t p = 0; p < pixels; ++p)
    for (std::int64_t c = 0; c < form.channels; ++c) {
      const auto* pixel = image.samples.data() + p * channels;
      std::uint32_t value = form.channels == 1 && channels == 3 ? grey(pixel) : pixel[channels == 1 ? 0 : c];
      if (image.info.bits == 8 && form.bits == 16) value *= 257;
      if (image.info.bits == 16 && form.bits == 8) value = (value + 128) / 257;
      out.samples[std::size_t(c * pixels + p)] = std::uint16_t(value);
    }
  return out;
}

}  // namespace fq::detail
