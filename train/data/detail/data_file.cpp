#include "fakequant/train/data/detail/data_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/log.h"
#include "fakequant/train/data/detail/sample_layout.h"

namespace fq::detail {
namespace {

/// Description of a data set, for messages.
constexpr const char* kWantedDataSet =
    "a data set is an HDF5 file of groups, for example train and test, with x and y in each: docs/formats.md "
    "(Data sets) has the layout and the lines of Python that write it";

/// Returns whether a folder contains texts, from the description of file_kind.
bool ends_in_text(const std::string& kind) { return kind.find(" .txt ") != kind.npos; }

/// Returns the command that converts a file of this kind to a data set; empty if there is none.
std::string conversion_hint(const std::string& path, const std::string& kind) {
  const auto begins = [&](const char* text) { return kind.starts_with(text); };
  const auto ends = [&](const char* text) {
    return path.ends_with(text) || path.ends_with(text + std::string(".gz"));
  };
  std::error_code none;
  // The content decides. File names decide for formats without a signature.
  std::string command;
  if (std::filesystem::is_directory(path, none)) command = ends_in_text(kind) ? "from-text" : "from-images";
  if (begins("a NumPy array") || begins("an archive of NumPy arrays")) command = "from-npy";
  if (begins("an IDX file") || ends("-ubyte")) command = "from-idx";
  if (begins("a Parquet file")) command = "from-parquet";
  if (command.empty() && (ends(".csv") || ends(".tsv"))) command = "from-csv";
  if (command.empty() && begins("a text file")) command = "from-text";
  return command.empty()
             ? command
             : fmt::format("fakequant dataset {} {} -o data.h5 makes a data set of it; ", command, path);
}

constexpr const char* kClasses = "classes";
constexpr std::string_view kBlank = " \t\r\n";

/// Returns `path` if it is an HDF5 file. Throws FileError for another file, naming its kind and the command
/// that makes a data set of it.
/// Called before the HDF5 library opens the file, whose own error would not name the file's kind.
const std::string& checked_data_set(const std::string& path) {
  std::error_code error;
  const bool directory = std::filesystem::is_directory(path, error);
  if (!directory && has_hdf5_signature(FileReader(path))) return path;
  const std::string kind = file_kind(path);
  const std::string what =
      directory ? "is " + kind : fmt::format("is not an HDF5 file{}", kind.empty() ? "" : " but " + kind);
  throw FileError(
      path, "",
      fmt::format("[dataset] {} {}: {}{}", path, what, conversion_hint(path, kind), kWantedDataSet));
}

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin));
}

/// Returns null for a text that is not JSON or nests too deep.
nlohmann::json parse_or_null(std::string_view text) try {
  return parse_json<nlohmann::json>(text);
} catch (const nlohmann::json::exception&) {
  return {};
} catch (const ArgumentError&) {
  return {};
}

std::vector<std::string> json_names(std::string_view text) {
  const nlohmann::json value = parse_or_null(text);
  if (!value.is_array() || !std::ranges::all_of(value, [](const auto& item) { return item.is_string(); }))
    return {};
  return value.get<std::vector<std::string>>();
}

bool is_count(double value) {
  return value == std::floor(value) && value >= 1 && value <= static_cast<double>(kMostClasses);
}

/// Returns the number if the only text is a number.
std::optional<std::int64_t> parse_count(const std::vector<std::string>& texts) {
  if (texts.size() != 1) return std::nullopt;
  const nlohmann::json value = parse_or_null(texts[0]);
  if (!value.is_number() || !is_count(value.get<double>())) return std::nullopt;
  return static_cast<std::int64_t>(value.get<double>());
}

// A single text can have all names (split_names); several texts are one name each.
std::vector<std::string> one_line_names(std::vector<std::string> texts) {
  if (texts.size() == 1) texts = split_names(texts[0]);
  std::ranges::transform(texts, texts.begin(), one_line_name);
  return texts;
}

/// Throws FileError for a checkpoint and similar files of fakequant, which are HDF5, too.
void check_no_state(const std::string& path) {
  std::string kind;
  try {
    kind = state_file_info(path).kind;
  } catch (const FileError&) {
    return;
  }
  throw FileError(path, "",
                  fmt::format("[dataset] {} is a file of kind '{}' that fakequant wrote, not a data set: {}",
                              path, kind, kWantedDataSet));
}

}  // namespace

std::vector<std::string> split_names(std::string_view text) {
  const std::string whole = trimmed(text);
  if (whole.empty()) return {};
  if (whole[0] == '[' || whole[0] == '{') return json_names(whole);
  // Lines decide, because names can have commas.
  const char mark = whole.find('\n') != whole.npos ? '\n' : ',';
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= whole.size();) {
    const auto end = std::min(whole.find(mark, begin), whole.size());
    names.push_back(trimmed(std::string_view(whole).substr(begin, end - begin)));
    begin = end + 1;
  }
  return names;
}

StatedClasses read_classes(const Hdf5Reader& file, const std::string& group) {
  const std::string at = file.has_attribute(group, kClasses) ? group : "/";
  if (!file.has_attribute(at, kClasses)) return {};
  if (const auto texts = file.texts(at, kClasses)) {
    // A text "10" is a count, not a class with this name.
    if (const auto count = parse_count(*texts)) return {*count, {}};
    auto names = one_line_names(*texts);
    if (!names.empty()) return {static_cast<std::int64_t>(names.size()), std::move(names)};
  } else if (file.has_numbers(at, kClasses)) {
    const auto values = *file.numbers(at, kClasses);
    if (values.size() == 1 && is_count(values[0])) return {static_cast<std::int64_t>(values[0]), {}};
    // A number out of range is an error, not a warning: the writer meant a count.
    if (values.size() == 1)
      throw FileError(
          file.path(), at,
          fmt::format("[dataset] {} has an attribute 'classes' of {}: use their number, 1 to {}, or "
                      "their names",
                      file.path(), values[0], kMostClasses));
  }
  log(LogLevel::warning, fmt::format("[dataset] {} has an unsupported attribute 'classes', which is ignored: "
                                     "use a number, a list of names, or a text as [\"cat\", \"dog\"]",
                                     file.path()));
  return {};
}

DataFile::DataFile(const std::string& path, const Hdf5DatasetOptions& options)
    : file_(checked_data_set(path)), options_(options) {
  // A checkpoint is HDF5, too: this message is better than a missing group.
  if (!file_.has(options.split)) check_no_state(path);
  if (!file_.has(options.split))
    refuse("", fmt::format("has no group '{}', but {}", options.split, fmt::join(file_.children("/"), ", ")));
}

Hdf5Rows DataFile::open_x() const {
  auto rows = open("x");
  const auto& shape = rows.shape();
  if (shape.size() < 2) refuse("x", fmt::format("has the shape {}: use [N, ..]", to_string(shape)));
  if (shape[0] == 0) refuse("x", "has zero images");
  if (rows.row_bytes() == 0) refuse("x", fmt::format("has the shape {}: an axis is empty", to_string(shape)));
  // Integers wider than a byte are token ids, which have one row of ids per sample.
  const bool wide = is_of_ids(rows.dtype());
  if (wide && shape.size() != 2)
    refuse("x", fmt::format("is {} {}: images are u8, i8, f16, f32 or f64; token ids [N, L]",
                            fq::name(rows.dtype()), to_string(shape)));
  return rows;
}

void DataFile::check_sample(const Shape& sample) const {
  if (!options_.sample_shape.empty() && sample != options_.sample_shape) {
    std::string remedy = way_to_shape(sample, options_.sample_shape);
    if (is_of_ids(open("x").dtype()) && sample.size() == 1 && options_.sample_shape.size() == 1)
      remedy = fmt::format("use windows of {}, or a network for {} (import it with --input-shape {})",
                           options_.sample_shape[0], sample[0], sample[0]);
    refuse("x", fmt::format("has samples of {}, the network takes {}: {}", to_string(sample),
                            to_string(options_.sample_shape),
                            remedy.empty() ? "use other data or another network" : remedy));
  }
  if (options_.sample_shape.empty()) check_axes(sample);
}

bool DataFile::LabelKind::classes() const {
  return !is_floating(dtype) && (shape.size() == 1 || (shape.size() == 2 && shape[1] == 1));
}

std::optional<DataFile::LabelKind> DataFile::label_kind() const {
  if (!file_.has(name("y"))) return std::nullopt;
  const auto rows = open("y");
  return LabelKind{rows.dtype(), rows.shape()};
}

void DataFile::check_label_type(const LabelKind& kind) const {
  if (kind.classes() || options_.label_type == LabelType::numbers) return;
  if (is_floating(kind.dtype))
    refuse("y", fmt::format("is {}: labels of classes are integers; numbers are for losses of numbers, such "
                            "as mse",
                            fq::name(kind.dtype)));
  if (options_.label_type == LabelType::classes)
    refuse("y", fmt::format("has the shape {}: use [N]", to_string(kind.shape)));
}

void DataFile::check_finite(const Tensor& y) const {
  if (!is_floating(y.dtype())) return;
  const auto values = y.to(DType::f32);
  const auto* begin = values.data<float>();
  const auto* bad = std::find_if(begin, begin + y.numel(), [](float value) { return !std::isfinite(value); });
  if (bad != begin + y.numel())
    refuse("y", fmt::format("has a NaN or infinity in row {}", (bad - begin) / (y.numel() / y.dim(0))));
}

Tensor DataFile::read_y(std::int64_t count) const {
  if (options_.may_lack_labels && !file_.has(name("y"))) return {};
  const auto rows = open("y");
  const auto& shape = rows.shape();
  const LabelKind kind{rows.dtype(), shape};
  check_label_type(kind);
  if (shape[0] != count) refuse("y", fmt::format("has {} labels, x has {} images", shape[0], count));
  if (rows.row_bytes() == 0) refuse("y", fmt::format("has the shape {}: an axis is empty", to_string(shape)));
  const Tensor y = rows.read_all();
  check_finite(y);
  return kind.classes() ? y.reshape({count}).to(DType::i64) : y;
}

StatedClasses DataFile::classes() const { return read_classes(file_, options_.split); }

std::int64_t DataFile::check_labels(const Tensor& y, std::int64_t stated) const {
  // The network's number of classes is stricter than the file's. Without both, the largest label decides.
  const std::int64_t limit = options_.classes > 0 ? options_.classes : stated;
  const auto* labels = y.data<std::int64_t>();
  const std::int64_t below = limit > 0 ? limit : kMostClasses;
  const auto* bad =
      std::find_if(labels, labels + y.numel(), [&](auto label) { return label < 0 || label >= below; });
  if (bad != labels + y.numel())
    refuse("y", fmt::format("has the label {} in row {}: labels are 0 to {}{}", *bad, bad - labels, below - 1,
                            limit == stated && stated > 0 ? ", by the attribute 'classes'" : ""));
  return limit > 0 ? limit : *std::max_element(labels, labels + y.numel()) + 1;
}

Normalisation DataFile::normalisation(std::int64_t channels) const {
  Normalisation result;
  for (const char* key : {"scale", "mean", "std"}) result.stated |= file_.has_attribute(name("x"), key);
  result.scale = attribute("scale", 1, 1.0f)[0];
  result.mean = attribute("mean", channels, 0.0f);
  result.deviation = attribute("std", channels, 1.0f);
  if (!(result.scale > 0)) refuse("x", "has an attribute 'scale' that is not positive");
  for (const float value : result.deviation)
    if (!(value > 0)) refuse("x", "has an attribute 'std' that is not positive");
  return result;
}

SampleNotes DataFile::notes() const {
  const auto numbers = [&](const char* key) {
    return file_.numbers(name("x"), key).value_or(std::vector<double>());
  };
  const auto scale = numbers("scale");
  SampleNotes out{
      .scale = scale.size() == 1 ? scale[0] : 0, .mean = numbers("mean"), .deviation = numbers("std")};
  if (const auto columns = file_.texts("/", "columns"))
    out.columns = columns->size() == 1 ? split_names(columns->front()) : *columns;
  return out;
}

void DataFile::doubt_range(const std::vector<std::byte>& values, DType dtype) const {
  if (looks_like_bytes(values, dtype))
    warn(
        fmt::format("is {} of values up to 255, and the network sees them so: store pixels as u8 with "
                    "x.attrs[\"scale\"] = 1 / 255, or, if it is right, with scale = 1",
                    fq::name(dtype)));
}

std::string DataFile::name(const std::string& part) const {
  return options_.split.empty() ? part : options_.split + "/" + part;
}

void DataFile::refuse(const std::string& part, const std::string& why) const {
  const std::string at = part.empty() ? file_.path() : file_.path() + ":" + name(part);
  throw FileError(file_.path(), part.empty() ? options_.split : name(part),
                  fmt::format("[dataset] {} {}", at, why));
}
void DataFile::warn(const std::string& why) const {
  log(LogLevel::warning, fmt::format("[dataset] {}:{} {}", file_.path(), name("x"), why));
}

Hdf5Rows DataFile::open(const std::string& part) const {
  if (file_.has(name(part))) return file_.rows(name(part));
  const auto others = file_.children(options_.split);
  refuse(part, fmt::format("is missing, there is {}",
                           others.empty() ? "nothing" : fmt::format("{}", fmt::join(others, ", "))));
}

void DataFile::check_axes(const Shape& sample) const {
  const auto doubt = looks_channels_last(sample);
  if (doubt == ChannelsLast::no || says_channels_first()) return;
  const std::string what = fmt::format(
      "has samples of {}, read as channels, height, width: it looks like height, width, channels; write "
      "x.transpose(0, 3, 1, 2), or, if it is right, x.attrs[\"axes\"] = \"NCHW\"",
      to_string(sample));
  // An uncertain case only warns: [64, 28, 1] can be 64 channels of 28 x 1.
  if (doubt == ChannelsLast::surely && options_.check_layout) refuse("x", what);
  warn(what);
}

bool DataFile::says_channels_first() const {
  const auto axes = file_.texts(name("x"), "axes");
  return axes && axes->size() == 1 && axes->front() == "NCHW";
}

std::vector<float> DataFile::attribute(const std::string& key, std::int64_t count, float fallback) const {
  const auto values = file_.numbers(name("x"), key).value_or(std::vector<double>{fallback});
  if (values.size() != 1 && static_cast<std::int64_t>(values.size()) != count)
    refuse("x", fmt::format("has an attribute '{}' of {} values: use 1 or {}", key, values.size(), count));
  std::vector<float> all(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<float>(values[values.size() == 1 ? 0 : i]);
  if (!std::ranges::all_of(all, [](float value) { return std::isfinite(value); }))
    refuse("x", fmt::format("has an attribute '{}' that is not finite", key));
  return all;
}

std::vector<std::string> data_groups(const std::string& path) {
  const Hdf5Reader file(checked_data_set(path));
  std::vector<std::string> found;
  if (file.has("x")) found.emplace_back();
  auto names = file.children("/");
  // The usual names come first in this order; a group of the file is listed once.
  names.insert(names.begin(), {"train", "val", "test"});
  for (const auto& name : names)
    if (std::ranges::find(found, name) == found.end() && file.has(name + "/x")) found.push_back(name);
  if (found.empty()) check_no_state(path);
  if (found.empty())
    throw FileError(path, "",
                    fmt::format("[dataset] {} has no group with an x, but {}: {}", path,
                                fmt::join(file.children("/"), ", "), kWantedDataSet));
  return found;
}

}  // namespace fq::detail
