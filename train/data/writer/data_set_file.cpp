#include "fakequant/train/data/writer/data_set_file.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/io/detail/hdf5_writer.h"
#include "fakequant/train/data/writer/channel_statistics.h"

namespace fq::detail {
namespace {

std::string name_of(std::size_t group, const char* part) {
  return fmt::format("{}/{}", kGroups[group], part);
}

/// Where a label of a written group comes from.
struct KeptLabel {
  std::size_t part;
  std::int64_t row;
};

class Conversion {
 public:
  Conversion(const std::string& path, const std::vector<DataSetPart>& parts, const DataSetOptions& options)
      : path_(path), parts_(parts), options_(options), file_(path), statistics_(type()) {}

  DataSetSummary run(const ConversionProgress& progress) {
    check_labels();
    std::int64_t done = 0;
    for (std::size_t part = 0; part < parts_.size(); ++part)
      for (std::int64_t row = 0; row < parts_[part].samples->size(); ++row) {
        add(part, row);
        if (progress) progress(++done);
      }
    finish();
    file_.commit();
    return summary_;
  }

 private:
  [[nodiscard]] const SampleType& type() const { return parts_.front().samples->type(); }
  [[nodiscard]] const Labels& labels() const { return parts_.front().labels; }

  void check_labels() {
    if (labels().task == Task::several) summary_.classes = labels().values.dim(1);
    if (labels().task != Task::classes && labels().task != Task::dense) return;
    const auto named = std::int64_t(labels().class_names.size());
    for (const auto& part : parts_) {
      const auto* values = part.labels.values.data<std::int64_t>();
      const std::int64_t each = part.labels.values.numel() / std::max<std::int64_t>(part.samples->size(), 1);
      for (std::int64_t i = 0; i < part.labels.values.numel(); ++i) {
        if (named > 0 && values[i] >= named)
          throw FileError(path_, "",
                          fmt::format("[dataset] {} has the label {}, but there are {} names of classes",
                                      part.samples->place_of(i / each), values[i], named));
        summary_.classes = std::max({summary_.classes, values[i] + 1, named});
      }
    }
  }

  void add(std::size_t part, std::int64_t row) {
    const DataSetPart& from = parts_[part];
    const std::size_t group = from.groups[std::size_t(row)];
    sample_.resize(std::size_t(numel(type().shape) * bit_width(type().dtype) / 8));
    if (!from.samples->read(row, sample_.data())) {
      ++summary_.left_out;
      return;
    }
    if (!statistics_.add(sample_.data(), group == kTrain))
      throw FileError(
          path_, "",
          fmt::format("[dataset] {} has a NaN or infinity: leave that sample out, or give it a value",
                      from.samples->place_of(row)));
    if (kept_[group].empty()) file_.create(name_of(group, "x"), type().dtype, type().shape, rows_of(group));
    file_.append(name_of(group, "x"), sample_.data(), 1);
    kept_[group].push_back({part, row});
  }

  [[nodiscard]] std::int64_t rows_of(std::size_t group) const {
    std::int64_t count = 0;
    for (const auto& part : parts_) count += std::ranges::count(part.groups, std::uint8_t(group));
    return count;
  }

  void finish() {
    bool any = false;
    for (std::size_t group = 0; group < kGroups.size(); ++group) {
      summary_.rows[group] = std::int64_t(kept_[group].size());
      any |= summary_.rows[group] > 0;
    }
    if (!any)
      throw FileError(path_, "",
                      fmt::format("[dataset] no sample is left for {}: {}", path_,
                                  parts_.front().samples->first_left_out()));
    summary_.smallest = statistics_.smallest();
    summary_.largest = statistics_.largest();
    choose_scale();
    for (std::size_t group = 0; group < kGroups.size(); ++group)
      if (!kept_[group].empty()) finish_group(group);
    finish_file();
  }

  void choose_scale() {
    if (type().tokens) return;
    summary_.scale = options_.scale.value_or(options_.how ? options_.how->scale : type().scale);
    if (options_.how) {
      summary_.mean = options_.how->mean;
      summary_.deviation = options_.how->deviation;
    }
    if (!options_.normalise || options_.how) return;
    if (summary_.rows[kTrain] == 0)
      throw FileError(
          path_, "",
          fmt::format("[dataset] {} gets no sample for training, by whose mean and deviation values are "
                      "normalised: give the data set of the training by --like",
                      path_));
    const double scale = summary_.scale > 0 ? summary_.scale : 1;
    summary_.mean = statistics_.mean();
    summary_.deviation = statistics_.deviation();
    for (auto* values : {&summary_.mean, &summary_.deviation})
      for (double& value : *values) value *= scale;
  }

  void finish_group(std::size_t group) {
    const std::string x = name_of(group, "x");
    if (summary_.scale > 0) file_.attribute(x, "scale", std::vector{summary_.scale});
    if (!summary_.mean.empty()) file_.attribute(x, "mean", summary_.mean);
    if (!summary_.deviation.empty()) file_.attribute(x, "std", summary_.deviation);
    if (type().shape.size() == 3) file_.attribute(x, "axes", std::string("NCHW"));
    if (labels().task != Task::none) file_.write(name_of(group, "y"), labels_of(kept_[group]));
  }

  [[nodiscard]] Tensor labels_of(const std::vector<KeptLabel>& kept) const {
    Shape shape = labels().values.shape();
    shape[0] = std::int64_t(kept.size());
    Tensor out = Tensor::empty(shape, labels().values.dtype());
    const std::size_t bytes = std::size_t(out.nbytes()) / kept.size();
    auto* to = static_cast<std::byte*>(out.mutable_raw());
    for (const auto& [part, row] : kept) {
      std::memcpy(to,
                  static_cast<const std::byte*>(parts_[part].labels.values.raw()) + std::size_t(row) * bytes,
                  bytes);
      to += bytes;
    }
    return out;
  }

  void finish_file() {
    file_.attribute("/", kWriterAttribute, std::string(kWriterName));
    if (!labels().class_names.empty())
      file_.attribute("/", "classes", labels().class_names);
    else if (summary_.classes > 0)
      file_.attribute("/", "classes", std::vector{double(summary_.classes)});
    if (!options_.columns.empty()) file_.attribute("/", "columns", options_.columns);
    if (!options_.tokens.empty()) file_.attribute("/", "tokens", options_.tokens);
    if (!options_.tokenizer.empty()) {
      const std::vector<std::uint8_t> json(options_.tokenizer.begin(), options_.tokenizer.end());
      file_.write("tokenizer", Tensor::from(json, {std::int64_t(json.size())}));
    }
    if (options_.vocabulary.empty()) return;
    std::vector<std::uint8_t> text;
    for (const auto& word : options_.vocabulary) {
      text.insert(text.end(), word.begin(), word.end());
      if (options_.tokens != "characters") text.push_back('\n');
    }
    file_.write("vocabulary", Tensor::from(text, {std::int64_t(text.size())}));
  }

  const std::string& path_;
  const std::vector<DataSetPart>& parts_;
  const DataSetOptions& options_;
  Hdf5Writer file_;
  ChannelStatistics statistics_;
  DataSetSummary summary_;
  std::array<std::vector<KeptLabel>, kGroups.size()> kept_;
  std::vector<std::byte> sample_;
};

}  // namespace

DataSetSummary write_data_set(const std::string& path, const std::vector<DataSetPart>& parts,
                              const DataSetOptions& options, const ConversionProgress& progress) {
  return Conversion(path, parts, options).run(progress);
}

}  // namespace fq::detail
