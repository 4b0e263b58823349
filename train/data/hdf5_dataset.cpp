#include "fakequant/train/data/hdf5_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include <fmt/ranges.h>

#include "fakequant/core/check.h"
#include "fakequant/core/convert.h"
#include "fakequant/core/io/file_kind.h"
#include "fakequant/core/log.h"
#include "fakequant/train/data/block_cache.h"
#include "fakequant/train/data/class_names.h"
#include "fakequant/train/data/sample_layout.h"

namespace fq {
namespace detail {

/// What turns stored values into the network's: scale, then one mean and deviation a channel.
struct Normalisation {
  bool stated = false;  ///< by any of the attributes
  float scale = 1;
  std::vector<float> mean, deviation;

  [[nodiscard]] float apply(float value, std::size_t channel) const {
    return (value * scale - mean[channel]) / deviation[channel];
  }
};

}  // namespace detail
namespace {

using detail::Normalisation;

constexpr const char* kWanted =
    "a data set is an HDF5 file of groups, such as train and test, with x and y in each: docs/formats.md "
    "(Data sets) has the layout and the lines of Python that write it";

/// `path`, if it is HDF5; throws FileError saying what it is otherwise, but for one that cannot be read.
const std::string& checked_file(const std::string& path) {
  std::error_code error;
  const bool directory = std::filesystem::is_directory(path, error);
  if (!directory && detail::has_hdf5_signature(detail::FileReader(path))) return path;
  const std::string kind = detail::file_kind(path);
  throw FileError(path, "",
                  directory ? fmt::format("[dataset] {} is {}: {}", path, kind, kWanted)
                            : fmt::format("[dataset] {} is not an HDF5 file{}: {}", path,
                                          kind.empty() ? "" : " but " + kind, kWanted));
}

class Opener {
 public:
  Opener(const std::string& path, const Hdf5DatasetOptions& options)
      : file_(checked_file(path)), options_(options) {
    if (!file_.has(options.split))
      refuse("",
             fmt::format("has no group '{}', but {}", options.split, fmt::join(file_.children("/"), ", ")));
  }

  [[nodiscard]] detail::Hdf5Rows open_x() const {
    auto rows = open("x");
    const auto& shape = rows.shape();
    if (shape.size() < 2) refuse("x", fmt::format("has the shape {}: give [N, ..]", to_string(shape)));
    if (shape[0] == 0) refuse("x", "has zero images");
    if (rows.row_bytes() == 0)
      refuse("x", fmt::format("has the shape {}: an axis is empty", to_string(shape)));
    const bool wide = rows.dtype() == DType::i16 || rows.dtype() == DType::i32 || rows.dtype() == DType::i64;
    if (wide && shape.size() != 2)
      refuse("x", fmt::format("is {} {}: images are u8, i8, f16, f32 or f64; token ids [N, L]",
                              fq::name(rows.dtype()), to_string(shape)));
    return rows;
  }

  void check_sample(const Shape& sample) const {
    if (!options_.sample_shape.empty() && sample != options_.sample_shape) {
      const std::string way = detail::way_to_shape(sample, options_.sample_shape);
      refuse("x", fmt::format("has samples of {}, the network takes {}: {}", to_string(sample),
                              to_string(options_.sample_shape),
                              way.empty() ? "give other data or another network" : way));
    }
    if (options_.sample_shape.empty()) check_axes(sample);
  }

  /// Undefined when there is none and need not be.
  [[nodiscard]] Tensor read_y(std::int64_t count) const {
    if (options_.may_lack_labels && !file_.has(name("y"))) return {};
    const auto rows = open("y");
    const auto& shape = rows.shape();
    if (is_floating(rows.dtype()))
      refuse("y", fmt::format("is {}: labels are integers", fq::name(rows.dtype())));
    if (shape.size() > 2 || (shape.size() == 2 && shape[1] != 1))
      refuse("y", fmt::format("has the shape {}: give [N]", to_string(shape)));
    if (shape[0] != count) refuse("y", fmt::format("has {} labels, x has {} images", shape[0], count));
    return rows.read_all().reshape({count}).to(DType::i64);
  }

  [[nodiscard]] detail::StatedClasses classes() const { return detail::read_classes(file_, options_.split); }

  [[nodiscard]] std::int64_t check_labels(const Tensor& y, std::int64_t stated) const {
    const std::int64_t limit = options_.classes > 0 ? options_.classes : stated;
    const auto* labels = y.data<std::int64_t>();
    const std::int64_t below = limit > 0 ? limit : detail::kMostClasses;
    const auto* bad =
        std::find_if(labels, labels + y.numel(), [&](auto label) { return label < 0 || label >= below; });
    if (bad != labels + y.numel())
      refuse("y",
             fmt::format("has the label {} in row {}: labels are 0 to {}{}", *bad, bad - labels, below - 1,
                         limit == stated && stated > 0 ? ", by the attribute 'classes'" : ""));
    return limit > 0 ? limit : *std::max_element(labels, labels + y.numel()) + 1;
  }

  [[nodiscard]] Normalisation normalisation(std::int64_t channels) const {
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

  /// Of values as they are stored, which nothing scales.
  void doubt_range(const std::vector<std::byte>& values, DType dtype) const {
    if (detail::looks_like_bytes(values, dtype))
      warn(
          fmt::format("is {} of values up to 255, and the network sees them so: store pixels as u8 with "
                      "x.attrs[\"scale\"] = 1 / 255, or, if it is right, with scale = 1",
                      fq::name(dtype)));
  }

  [[nodiscard]] std::string name(const std::string& part) const {
    return options_.split.empty() ? part : options_.split + "/" + part;
  }

 private:
  [[noreturn]] void refuse(const std::string& part, const std::string& why) const {
    const std::string at = part.empty() ? file_.path() : file_.path() + ":" + name(part);
    throw FileError(file_.path(), part.empty() ? options_.split : name(part),
                    fmt::format("[dataset] {} {}", at, why));
  }
  void warn(const std::string& why) const {
    log(LogLevel::warning, fmt::format("[dataset] {}:{} {}", file_.path(), name("x"), why));
  }

  [[nodiscard]] detail::Hdf5Rows open(const std::string& part) const {
    if (file_.has(name(part))) return file_.rows(name(part));
    const auto others = file_.children(options_.split);
    refuse(part, fmt::format("is missing, there is {}",
                             others.empty() ? "nothing" : fmt::format("{}", fmt::join(others, ", "))));
  }

  void check_axes(const Shape& sample) const {
    const auto doubt = detail::looks_channels_last(sample);
    if (doubt == detail::ChannelsLast::no || says_channels_first()) return;
    const std::string what = fmt::format(
        "has samples of {}, read as channels, height, width: it looks like height, width, channels; write "
        "x.transpose(0, 3, 1, 2), or, if it is right, x.attrs[\"axes\"] = \"NCHW\"",
        to_string(sample));
    if (doubt == detail::ChannelsLast::surely && options_.check_layout) refuse("x", what);
    warn(what);
  }

  [[nodiscard]] bool says_channels_first() const {
    const auto axes = file_.texts(name("x"), "axes");
    return axes && axes->size() == 1 && axes->front() == "NCHW";
  }

  [[nodiscard]] std::vector<float> attribute(const std::string& key, std::int64_t count,
                                             float fallback) const {
    const auto values = file_.numbers(name("x"), key).value_or(std::vector<double>{fallback});
    if (values.size() != 1 && static_cast<std::int64_t>(values.size()) != count)
      refuse("x", fmt::format("has an attribute '{}' of {} values: give 1 or {}", key, values.size(), count));
    std::vector<float> all(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<float>(values[values.size() == 1 ? 0 : i]);
    if (!std::ranges::all_of(all, [](float value) { return std::isfinite(value); }))
      refuse("x", fmt::format("has an attribute '{}' that is not finite", key));
    return all;
  }

  detail::Hdf5Reader file_;
  const Hdf5DatasetOptions& options_;
};

float as_float(float value) { return value; }
float as_float(double value) { return static_cast<float>(value); }
float as_float(float16 value) { return static_cast<float>(value); }
float as_float(bfloat16 value) { return static_cast<float>(value); }
float as_float(std::integral auto value) { return static_cast<float>(value); }

/// One row of [C, inner] elements; false when one is not finite.
template <class T>
bool decode(const T* from, std::int64_t inner, const Normalisation& how, float* to) {
  bool finite = true;
  for (std::size_t channel = 0; channel < how.mean.size(); ++channel)
    for (std::int64_t i = 0; i < inner; ++i, ++from, ++to) {
      *to = how.apply(as_float(*from), channel);
      finite &= std::abs(*to) <= std::numeric_limits<float>::max();
    }
  return finite;
}

}  // namespace

struct Hdf5Dataset::Body {
  std::string path, x_name;
  std::unique_ptr<detail::BlockCache> x;
  Tensor y;
  Shape sample_shape;
  std::int64_t classes = 0;
  std::vector<std::string> class_names;
  bool ids = false;
  detail::Normalisation how;

  Body(std::string file, const Hdf5DatasetOptions& options) : path(std::move(file)) {
    const Opener opener(path, options);
    x_name = opener.name("x");
    auto rows = opener.open_x();
    sample_shape.assign(rows.shape().begin() + 1, rows.shape().end());
    ids = rows.dtype() == DType::i16 || rows.dtype() == DType::i32 || rows.dtype() == DType::i64;
    opener.check_sample(sample_shape);
    if (!ids) how = opener.normalisation(sample_shape[0]);
    auto stated = opener.classes();
    class_names = std::move(stated.names);
    if (options.labels) y = opener.read_y(rows.shape()[0]);
    if (y.defined()) classes = opener.check_labels(y, stated.count);
    x = std::make_unique<detail::BlockCache>(std::move(rows), options.cache_bytes);
    if (!ids && !how.stated) opener.doubt_range(*x->get(0), x->rows().dtype());
  }

  [[nodiscard]] std::int64_t size() const { return x->rows().shape()[0]; }

  void read_row(std::int64_t row, const std::byte* from, Tensor& out, std::int64_t at) const {
    const std::int64_t count = numel(sample_shape);
    detail::visit_dtype(x->rows().dtype(), "dataset", [&]<class T>(T) {
      const auto* values = reinterpret_cast<const T*>(from);
      if constexpr (std::is_integral_v<T>)
        if (ids)
          return static_cast<void>(std::copy_n(values, count, out.mutable_data<std::int64_t>() + at * count));
      if (!decode(values, count / sample_shape[0], how, out.mutable_data<float>() + at * count))
        throw FileError(path, x_name,
                        fmt::format("[dataset] {}:{} has a NaN or infinity in row {}", path, x_name, row));
    });
  }
};

Hdf5Dataset::Hdf5Dataset(std::string path, Hdf5DatasetOptions options)
    : body_(std::make_unique<Body>(std::move(path), options)) {}
Hdf5Dataset::~Hdf5Dataset() = default;

std::int64_t Hdf5Dataset::size() const noexcept { return body_->size(); }
const Shape& Hdf5Dataset::sample_shape() const noexcept { return body_->sample_shape; }
std::int64_t Hdf5Dataset::classes() const noexcept { return body_->classes; }
const std::vector<std::string>& Hdf5Dataset::class_names() const noexcept { return body_->class_names; }
bool Hdf5Dataset::token_ids() const noexcept { return body_->ids; }
Tensor Hdf5Dataset::labels() const { return body_->y; }

std::vector<float> Hdf5Dataset::background() const {
  if (token_ids()) return Dataset::background();
  std::vector<float> values;
  for (std::size_t channel = 0; channel < body_->how.mean.size(); ++channel)
    values.push_back(body_->how.apply(0, channel));
  return values;
}

Batch Hdf5Dataset::read(std::span<const std::int64_t> rows) const {
  const auto count = static_cast<std::int64_t>(rows.size());
  Shape shape{count};
  shape.insert(shape.end(), sample_shape().begin(), sample_shape().end());
  Batch batch{Tensor::empty(shape, token_ids() ? DType::i64 : DType::f32), {}};
  if (body_->y.defined()) batch.y = Tensor::empty({count}, DType::i64);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = rows[static_cast<std::size_t>(i)];
    FQ_CHECK(0 <= row && row < size(), "dataset", "sample {} is out of range: there are {}", row, size());
    const auto block = body_->x->get(row / body_->x->block_rows());
    body_->read_row(row, block->data() + row % body_->x->block_rows() * body_->x->rows().row_bytes(), batch.x,
                    i);
    if (batch.y.defined()) batch.y.mutable_data<std::int64_t>()[i] = body_->y.data<std::int64_t>()[row];
  }
  return batch;
}

std::vector<std::int64_t> Hdf5Dataset::block_starts() const {
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < body_->x->count(); ++i) starts.push_back(i * body_->x->block_rows());
  return starts;
}

std::int64_t Hdf5Dataset::blocks_at_once() const noexcept {
  const std::int64_t kept = body_->x->capacity();
  return kept >= body_->x->count() ? kept : std::max<std::int64_t>(kept / 2, 1);
}

}  // namespace fq
