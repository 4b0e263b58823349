#include "fakequant/report/detail/contact_sheet.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/report/detail/html.h"
#include "fakequant/report/detail/page_assets.h"
#include "fakequant/report/detail/picture.h"
#include "fakequant/train/data/detail/data_file.h"
#include "fakequant/train/data/detail/tokens.h"
#include "fakequant/train/data/hdf5_dataset.h"

namespace fq {
namespace {

using detail::DataFile;
using detail::Hdf5Rows;
using detail::Normalisation;
using detail::read_tokenizer;
using detail::Tokenizer;
using detail::valid_utf8;

constexpr std::int64_t kMostNumbers = 12, kMostTokens = 64;

/// Returns a row of the file as floats.
/// Values are as the file stores them: pixels without scale and normalisation, token ids as floats.
std::vector<float> read_values(const Hdf5Rows& rows, std::int64_t row, std::int64_t count) {
  std::vector<std::byte> bytes(std::size_t(rows.row_bytes()));
  rows.read(row, row + 1, bytes.data());
  std::vector<float> values(static_cast<std::size_t>(count));
  detail::visit_dtype(rows.dtype(), "dataset", [&]<class T>(T) {
    const auto* from = reinterpret_cast<const T*>(bytes.data());
    std::ranges::transform(from, from + count, values.begin(),
                           [](T value) { return static_cast<float>(value); });
  });
  return values;
}

/// Decodes token ids to text. Without a tokenizer in the data set, prints the ids.
class SampleDecoder {
 public:
  explicit SampleDecoder(const std::string& path) {
    try {
      tokenizer_ = read_tokenizer(path);
    } catch (const FileError&) {  // a data set without a tokenizer shows its ids
    }
  }

  [[nodiscard]] std::string text(const std::vector<float>& values) const {
    const auto shown = std::ptrdiff_t(std::min(values.size(), std::size_t(kMostTokens)));
    const std::vector<std::int64_t> ids(values.begin(), values.begin() + shown);
    return tokenizer_ ? valid_utf8(tokenizer_->decode(ids)) : fmt::format("{}", fmt::join(ids, " "));
  }

 private:
  std::optional<Tokenizer> tokenizer_;
};

std::string numbers(const std::vector<float>& values) {
  std::string out;
  for (std::size_t i = 0; i < values.size() && i < std::size_t(kMostNumbers); ++i)
    out += fmt::format("{}{:.4g}", i == 0 ? "" : " ", values[i]);
  return values.size() > std::size_t(kMostNumbers) ? out + " .." : out;
}

/// Returns the rows of each label. Without labels, all rows have the label -1.
std::map<std::int64_t, std::vector<std::int64_t>> rows_by_class(const Tensor& labels, std::int64_t count) {
  std::map<std::int64_t, std::vector<std::int64_t>> rows;
  for (std::int64_t i = 0; i < count; ++i)
    rows[labels.defined() ? labels.data<std::int64_t>()[i] : -1].push_back(i);
  return rows;
}

// Returns `count` of the rows, evenly spaced, and at least one.
std::vector<std::int64_t> spread(const std::vector<std::int64_t>& rows, std::int64_t count) {
  std::vector<std::int64_t> out;
  const auto all = std::int64_t(rows.size()), few = std::min(all, std::max<std::int64_t>(count, 1));
  for (std::int64_t i = 0; i < few; ++i) out.push_back(rows[std::size_t(i * all / few)]);
  return out;
}

/// Values of the shown samples by class, sample and element. Values of pictures are multiplied by `scale`.
using ShownValues = std::vector<std::vector<std::vector<float>>>;

/// Returns an order that alternates between classes, so that mixed neighbours are of different classes.
std::vector<std::pair<std::size_t, std::size_t>> interleaved_order(const std::vector<ShownClass>& classes) {
  std::size_t most = 0;
  for (const auto& of : classes) most = std::max(most, of.samples.size());
  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (std::size_t i = 0; i < most; ++i)
    for (std::size_t c = 0; c < classes.size(); ++c)
      if (i < classes[c].samples.size()) order.emplace_back(c, i);
  return order;
}

/// Replaces the values by the augmented values that the network would read, in the units of the file.
void change_values(const std::string& path, const std::string& split, const ShownChange& how,
                   const ShownData& shown, ShownValues& values) {
  const Hdf5Dataset data(path, {.split = split, .labels = false, .check_layout = false});
  check(how.options, data.sample_shape(), data.token_ids());
  const auto order = interleaved_order(shown.classes);
  std::vector<std::int64_t> rows;
  for (const auto& [c, i] : order) rows.push_back(shown.classes[c].samples[i].row);
  Batch batch = data.read(rows);
  augment(batch.x, rows, how.options, how.seed, 0, data.background(), data.white());
  // `mix` requires labels. Only the samples are shown, so any labels do.
  batch.y = Tensor::zeros({batch.size()});
  mix(batch, rows, how.options, how.seed, 0, 0);
  // The data set normalises samples: x' = (x * scale - mean) / deviation. This undoes mean and deviation.
  // Pictures keep the scale, as ShownValues requires.
  const auto back = data.token_ids() ? Normalisation()
                                     : DataFile(path, {.split = split}).normalisation(data.sample_shape()[0]);
  const auto all = batch.x.to(DType::f32).to_vector<float>();
  const std::int64_t each = numel(data.sample_shape()), inner = each / data.sample_shape()[0];
  for (std::size_t at = 0; at < order.size(); ++at)
    for (std::int64_t i = 0; i < each; ++i) {
      const float value = all[at * std::size_t(each) + std::size_t(i)];
      const auto channel = std::size_t(i / inner);
      values[order[at].first][order[at].second][std::size_t(i)] =
          back.mean.empty() ? value : value * back.deviation[channel] + back.mean[channel];
    }
}

}  // namespace

ShownData samples_to_show(const std::string& path, const std::string& split, std::int64_t count,
                          const std::optional<ShownChange>& change) {
  Hdf5DatasetOptions options;
  options.split = split;
  options.may_lack_labels = true;
  const DataFile file(path, options);
  const Hdf5Rows rows = file.open_x();
  const Shape sample(rows.shape().begin() + 1, rows.shape().end());
  // Integers of more than 8 bits are token ids. 8-bit integers are pixels.
  const bool tokens = !is_floating(rows.dtype()) && bit_width(rows.dtype()) > 8;
  const float scale = tokens ? 1 : file.normalisation(sample[0]).scale;
  const detail::StatedClasses stated = file.classes();
  const auto kind = file.label_kind();
  const Tensor labels = kind && kind->classes() ? file.read_y(rows.shape()[0]) : Tensor();
  ShownData out{.rows = rows.shape()[0],
                .kind = fmt::format("{} {}", to_string(sample), tokens ? "token ids" : name(rows.dtype())),
                .pictures = sample.size() == 3,
                .classes = {}};
  const SampleDecoder decoder(path);
  const auto by_class = rows_by_class(labels, out.rows);
  ShownValues values;
  for (const auto& [label, all] : by_class) {
    const bool named = label >= 0 && label < std::ssize(stated.names);
    out.classes.push_back({.name = label < 0 ? ""
                                   : named   ? stated.names[std::size_t(label)]
                                             : std::to_string(label),
                           .count = std::int64_t(all.size())});
    values.emplace_back();
    for (const auto row : spread(all, count / std::ssize(by_class))) {
      out.classes.back().samples.push_back({.row = row});
      values.back().push_back(read_values(rows, row, numel(sample)));
      if (out.pictures)
        // NaN and infinity become 0. They would make the common range of the pixels useless.
        for (float& value : values.back().back()) value = std::isfinite(value) ? value * scale : 0;
    }
  }
  if (change) change_values(path, split, *change, out, values);
  // All samples share one range, so that their brightness can be compared.
  float lowest = 0, highest = 1;
  for (const auto& of_class : values)
    for (const auto& sample_values : of_class)
      for (const float value : sample_values)
        lowest = std::min(lowest, value), highest = std::max(highest, value);
  const std::vector<float> low(3, lowest), high(3, highest);
  for (std::size_t c = 0; c < values.size(); ++c)
    for (std::size_t i = 0; i < values[c].size(); ++i) {
      ShownSample& shown = out.classes[c].samples[i];
      if (out.pictures)
        shown.picture = make_picture(values[c][i], sample, low, high);
      else
        shown.text = tokens ? decoder.text(values[c][i]) : numbers(values[c][i]);
    }
  return out;
}

namespace {

using namespace html;
constexpr std::int64_t kGap = 4, kClassGap = 12, kColumns = 16;
/// An RGB picture that other pictures are copied into.
/// Pictures of one channel are copied to all three channels.
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
  out += fmt::format("<p>{} of {}; the number below a sample is its row</p>\n<div class=samples>\n",
                     of.samples.size(), grouped(of.count));
  for (const auto& sample : of.samples) out += figure(sample, pictures);
  return out + "</div>\n";
}

}  // namespace

std::string contact_sheet_png(const ShownData& data) {
  FQ_CHECK(data.pictures, "dataset show", "samples are {}: only images make a picture. Use --html",
           data.kind);
  const Picture first = resize_for_page(data.classes.at(0).samples.at(0).picture);
  // All samples of a data set have one shape, so the first picture gives the size of a cell.
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
