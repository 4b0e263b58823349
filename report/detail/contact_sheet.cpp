#include "fakequant/report/detail/contact_sheet.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/report/detail/page_style.h"
#include "fakequant/report/detail/text.h"
#include "fakequant/train/data/reader/images/resample.h"

namespace fq {
namespace {

using namespace html;
using detail::Image;
using detail::ShownClass;
using detail::ShownData;

constexpr std::int64_t kSmallTile = 64, kLargeTile = 160, kGap = 4, kClassGap = 12, kColumns = 16;
constexpr const char* kPicturePolicy =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
constexpr const char* kTiles = R"css(
.samples { display: flex; flex-wrap: wrap; gap: 8px; margin: 8px 0 20px; }
.samples figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 6px; }
.samples img { display: block; min-width: 64px; max-width: 224px; image-rendering: pixelated; }
.samples figcaption { color: var(--soft); font-size: 12px; text-align: center; }
.samples code { display: block; max-width: 60ch; overflow-wrap: anywhere; }
)css";

/// As large as it is shown.
Image tile(const Image& picture) {
  const std::int64_t width = picture.info.width, height = picture.info.height, side = std::max(width, height);
  if (side > kLargeTile)
    return detail::resized(picture, std::max<std::int64_t>(1, width * kLargeTile / side),
                           std::max<std::int64_t>(1, height * kLargeTile / side));
  const std::int64_t times = std::max<std::int64_t>(1, kSmallTile / side), channels = picture.info.channels;
  Image out{picture.info, {}};
  out.info.width = width * times;
  out.info.height = height * times;
  for (std::int64_t y = 0; y < out.info.height; ++y)
    for (std::int64_t x = 0; x < out.info.width; ++x)
      for (std::int64_t c = 0; c < channels; ++c)
        out.samples.push_back(picture.samples[std::size_t(((y / times) * width + x / times) * channels + c)]);
  return out;
}

/// A picture of red, green and blue that others are put on.
class Sheet {
 public:
  Sheet(std::int64_t width, std::int64_t height)
      : width_(width), height_(height), samples_(std::size_t(width * height * 3), 255) {}

  void put(const Image& picture, std::int64_t left, std::int64_t top) {
    const std::int64_t channels = picture.info.channels;
    for (std::int64_t y = 0; y < picture.info.height; ++y)
      for (std::int64_t x = 0; x < picture.info.width; ++x)
        for (std::int64_t c = 0; c < 3; ++c)
          samples_[std::size_t(((top + y) * width_ + left + x) * 3 + c)] = std::uint8_t(
              picture
                  .samples[std::size_t((y * picture.info.width + x) * channels + std::min(c, channels - 1))]);
  }
  [[nodiscard]] std::string png() const { return detail::encode_png(samples_, width_, height_, 3); }

 private:
  std::int64_t width_, height_;
  std::vector<std::uint8_t> samples_;
};

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kLetters[word >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string png_of(const Image& picture) {
  const std::vector<std::uint8_t> samples(picture.samples.begin(), picture.samples.end());
  return detail::encode_png(samples, picture.info.width, picture.info.height, picture.info.channels);
}

std::string figure(const detail::ShownSample& sample, bool picture) {
  const std::string shown = picture ? fmt::format("<img alt=\"row {}\" src=\"data:image/png;base64,{}\">",
                                                  sample.row, base64(png_of(tile(sample.picture))))
                                    : fmt::format("<code>{}</code>", escaped(sample.text));
  return fmt::format("<figure>{}<figcaption>{}</figcaption></figure>\n", shown, sample.row);
}

std::string section(const ShownClass& of, bool pictures) {
  std::string out = of.name.empty() ? "" : fmt::format("<h2>{}</h2>\n", escaped(of.name));
  out += fmt::format("<p>{} of {}; below each stands its row</p>\n<div class=samples>\n", of.samples.size(),
                     grouped(of.count));
  for (const auto& sample : of.samples) out += figure(sample, pictures);
  return out + "</div>\n";
}

}  // namespace

std::string contact_sheet_png(const ShownData& data) {
  FQ_CHECK(data.pictures, "dataset show", "samples are {}: only images make a picture; give --html",
           data.kind);
  const Image first = tile(data.classes.at(0).samples.at(0).picture);
  const std::int64_t across = first.info.width + kGap, down = first.info.height + kGap;
  std::int64_t columns = 1, height = kGap;
  for (const ShownClass& of : data.classes) {
    columns = std::max(columns, std::min(std::int64_t(of.samples.size()), kColumns));
    height += (std::ssize(of.samples) + kColumns - 1) / kColumns * down + kClassGap;
  }
  Sheet sheet(columns * across + kGap, height);
  std::int64_t top = kGap;
  for (const ShownClass& of : data.classes) {
    for (std::int64_t i = 0; i < std::ssize(of.samples); ++i)
      sheet.put(tile(of.samples[std::size_t(i)].picture), kGap + i % kColumns * across,
                top + i / kColumns * down);
    top += (std::ssize(of.samples) + kColumns - 1) / kColumns * down + kClassGap;
  }
  return sheet.png();
}

std::string contact_sheet_html(const std::string& title,
                               const std::vector<std::pair<std::string, std::string>>& facts,
                               const ShownData& data) {
  std::string out =
      "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=generator "
      "content=fakequant>\n";
  out += fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n", kPicturePolicy);
  out += "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n<p>",
                     escaped(title), page_style, kTiles, escaped(title));
  for (std::size_t i = 0; i < facts.size(); ++i)
    out +=
        fmt::format("{}{} <b>{}</b>", i == 0 ? "" : " · ", escaped(facts[i].first), escaped(facts[i].second));
  out += "</p>\n";
  for (const ShownClass& of : data.classes) out += section(of, data.pictures);
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace fq
