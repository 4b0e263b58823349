#include "fakequant/report/detail/contact_sheet.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/report/detail/page_style.h"
#include "fakequant/report/detail/picture.h"
#include "fakequant/report/detail/text.h"

namespace fq {
namespace {

using namespace html;
constexpr std::int64_t kGap = 4, kClassGap = 12, kColumns = 16;
/// A picture of red, green and blue that others are put on.
class Sheet {
 public:
  Sheet(std::int64_t width, std::int64_t height)
      : sheet_{width, height, 3, std::vector<std::uint8_t>(std::size_t(width * height * 3), 255)} {}

  void put(const Picture& picture, std::int64_t left, std::int64_t top) {
    for (std::int64_t y = 0; y < picture.height; ++y)
      for (std::int64_t x = 0; x < picture.width; ++x)
        for (std::int64_t c = 0; c < 3; ++c)
          sheet_.pixels[std::size_t(((top + y) * sheet_.width + left + x) * 3 + c)] =
              picture.pixels[std::size_t((y * picture.width + x) * picture.channels +
                                         std::min(c, picture.channels - 1))];
  }
  [[nodiscard]] std::string png() const { return encode_png(sheet_); }

 private:
  Picture sheet_;
};

std::string figure(const ShownSample& sample, bool picture) {
  const std::string shown =
      picture ? fmt::format("<img alt=\"row {}\" src=\"{}\">", sample.row, picture_uri(sample.picture))
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
  const Picture first = resize_for_page(data.classes.at(0).samples.at(0).picture);
  const std::int64_t across = first.width + kGap, down = first.height + kGap;
  std::int64_t columns = 1, height = kGap;
  for (const ShownClass& of : data.classes) {
    columns = std::max(columns, std::min(std::int64_t(of.samples.size()), kColumns));
    height += (std::ssize(of.samples) + kColumns - 1) / kColumns * down + kClassGap;
  }
  Sheet sheet(columns * across + kGap, height);
  std::int64_t top = kGap;
  for (const ShownClass& of : data.classes) {
    for (std::int64_t i = 0; i < std::ssize(of.samples); ++i)
      sheet.put(resize_for_page(of.samples[std::size_t(i)].picture), kGap + i % kColumns * across,
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
  out += fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n", picture_policy);
  out += "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n<p>",
                     escaped(title), page_style, samples_style, escaped(title));
  for (std::size_t i = 0; i < facts.size(); ++i)
    out +=
        fmt::format("{}{} <b>{}</b>", i == 0 ? "" : " · ", escaped(facts[i].first), escaped(facts[i].second));
  out += "</p>\n";
  for (const ShownClass& of : data.classes) out += section(of, data.pictures);
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace fq
