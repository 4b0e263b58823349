#include "fakequant/train/data/detail/checks/group_checks.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/train/data/detail/checks/data_checks.h"
#include "fakequant/train/data/detail/sample_layout.h"

namespace fq::detail {
namespace {

// Size of a piece that is read at once: bounds the memory for data sets of any size.
constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;

class GroupCheck {
 public:
  GroupCheck(const std::string& path, const std::string& name, std::uint32_t index,
             std::vector<Finding>& findings)
      : name_(name),
        index_(index),
        findings_(findings),
        options_(split_options(name)),
        file_(path, options_) {
    summary_.name = name;
  }

  bool check_shape() {
    try {
      // A group that cannot be opened has no other checks; the caller leaves it out.
      rows_.emplace(file_.open_x());
      take_shape();
    } catch (const FileError& error) {
      find(Verdict::wrong, "shape", error.what());
      return false;
    }
    const auto last = looks_channels_last(summary_.sample_shape);
    // Token ids have no channels, and an attribute `axes` settles the layout.
    const bool doubted = last != ChannelsLast::no && !summary_.tokens && !file_.says_channels_first();
    const std::string text =
        fmt::format("{} samples of {} {}", summary_.rows, to_string(summary_.sample_shape),
                    summary_.tokens ? "token ids" : fq::name(summary_.dtype));
    if (!doubted)
      find(Verdict::fine, "shape", text);
    else
      find(last == ChannelsLast::surely ? Verdict::wrong : Verdict::doubt, "shape",
           text +
               ": channels seem to stand last; write x.transpose(0, 3, 1, 2), or, if they come first, "
               "x.attrs[\"axes\"] = \"NCHW\"");
    return true;
  }

  void check_labels() {
    try {
      const StatedClasses stated = file_.classes();
      summary_.stated_classes = stated.count;
      summary_.class_names = stated.names;
      take_labels(stated.count);
    } catch (const FileError& error) {
      find(Verdict::wrong, "labels", error.what());
    }
  }

  void check_values(Duplicates& duplicates, const CheckProgress& progress) {
    const std::int64_t row_bytes = rows_->row_bytes(), count = numel(summary_.sample_shape);
    const std::int64_t chunk = rows_->chunk_rows();
    // Pieces are whole HDF5 chunks, so that each chunk is decompressed once.
    const std::int64_t step = std::max(chunk, kPieceBytes / row_bytes / chunk * chunk);
    std::vector<std::byte> bytes;
    for (std::int64_t begin = 0; begin < summary_.rows; begin += step) {
      const std::int64_t end = std::min(begin + step, summary_.rows);
      bytes.resize(std::size_t((end - begin) * row_bytes));
      rows_->read(begin, end, bytes.data());
      for (std::int64_t row = begin; row < end; ++row) {
        const std::byte* at = bytes.data() + (row - begin) * row_bytes;
        // Surveys stored values, before scale and mean, because findings describe the file.
        visit_dtype(summary_.dtype, "dataset",
                    [&]<class T>(T) { values_.add(reinterpret_cast<const T*>(at), count, row); });
        const std::int64_t label = summary_.labels.defined() ? summary_.labels.data<std::int64_t>()[row] : -1;
        duplicates.add({at, std::size_t(row_bytes)}, {index_, row, label});
      }
      if (progress) progress(end - begin);
    }
    judge_values();
  }

  GroupSummary take() { return std::move(summary_); }

 private:
  static Hdf5DatasetOptions split_options(const std::string& name) {
    Hdf5DatasetOptions options;
    options.split = name;
    // Missing labels are a finding of `take_labels`, not an error.
    options.may_lack_labels = true;
    return options;
  }

  void find(Verdict verdict, const char* about, std::string text) {
    findings_.push_back({verdict, name_, about, std::move(text)});
  }

  void take_shape() {
    const Shape& shape = rows_->shape();
    summary_.sample_shape.assign(shape.begin() + 1, shape.end());
    summary_.rows = shape[0];
    summary_.dtype = rows_->dtype();
    // Integers wider than a byte are token ids, as in is_of_ids.
    summary_.tokens = !is_floating(summary_.dtype) && bit_width(summary_.dtype) > 8;
    if (!summary_.tokens) summary_.how = file_.normalisation(summary_.sample_shape[0]);
  }

  void take_labels(std::int64_t stated) {
    const auto kind = file_.label_kind();
    if (!kind) return find(Verdict::fine, "labels", "none");
    if (kind->shape.empty() || kind->shape[0] != summary_.rows)
      return find(
          Verdict::wrong, "labels",
          fmt::format("{} labels for {} samples", kind->shape.empty() ? 0 : kind->shape[0], summary_.rows));
    if (!kind->classes())
      return find(Verdict::fine, "labels",
                  fmt::format("{} {}, no classes", fq::name(kind->dtype), to_string(kind->shape)));
    const Tensor y = file_.read_y(summary_.rows);
    const std::int64_t count = file_.check_labels(y, stated);
    summary_.labels = y;
    find(Verdict::fine, "labels",
         fmt::format("{} classes{}", count, summary_.class_names.empty() ? "" : ", named"));
  }

  void judge_values() {
    const std::string range = fmt::format("from {:.6g} to {:.6g}", values_.smallest, values_.largest);
    if (values_.bad_rows > 0)
      return find(Verdict::wrong, "values",
                  fmt::format("NaN or infinity in {} samples, the first in row {}", values_.bad_rows,
                              values_.first_bad));
    if (summary_.tokens && values_.smallest < 0)
      return find(Verdict::wrong, "values", fmt::format("token ids {}: they count from 0", range));
    if (summary_.tokens)
      return find(
          Verdict::fine, "values",
          fmt::format("ids {}: a vocabulary of {} or more", range, std::int64_t(values_.largest) + 1));
    if (values_.smallest == values_.largest && summary_.rows * numel(summary_.sample_shape) > 1)
      return find(Verdict::doubt, "values", fmt::format("nothing but {:.6g}", values_.largest));
    if (const auto channel = infinite_channel())
      return find(
          Verdict::wrong, "values",
          fmt::format("{} as stored, {:.6g} to {:.6g} as the network sees channel {}: correct scale {:.6g}, "
                      "mean {:.6g} or std {:.6g}, which training rejects",
                      range, summary_.how.apply(float(values_.smallest), *channel),
                      summary_.how.apply(float(values_.largest), *channel), *channel, summary_.how.scale,
                      summary_.how.mean[*channel], summary_.how.deviation[*channel]));
    // Values from 128 to 255 without a scale are probably pixels that were not divided by 255.
    const bool bytes = values_.smallest >= 0 && values_.largest >= 128 && values_.largest <= 255;
    if (bytes && !summary_.how.stated)
      return find(
          Verdict::doubt, "values",
          range + ", and the network sees them so: set x.attrs[\"scale\"] = 1 / 255 or, if it is right, 1");
    find(Verdict::fine, "values", summary_.how.stated ? range + seen() : range);
  }

  /// Returns the first channel whose normalised values are infinite or NaN.
  [[nodiscard]] std::optional<std::size_t> infinite_channel() const {
    const auto& how = summary_.how;
    for (std::size_t c = 0; c < how.deviation.size(); ++c)
      if (!std::isfinite(how.apply(float(values_.smallest), c)) ||
          !std::isfinite(how.apply(float(values_.largest), c)))
        return c;
    return std::nullopt;
  }

  /// Describes the range after scaling, if it is the same for all channels.
  [[nodiscard]] std::string seen() const {
    const auto& how = summary_.how;
    // With one mean per channel, there is no single range to show.
    const auto alike = [](const std::vector<float>& values) {
      return std::ranges::all_of(values, [&](float value) { return value == values[0]; });
    };
    if (!alike(how.mean) || !alike(how.deviation))
      return fmt::format(" as stored, scaled by {:.6g}, less a mean, by a deviation", how.scale);
    return fmt::format(" as stored, {:.6g} to {:.6g} as the network sees them",
                       how.apply(float(values_.smallest), 0), how.apply(float(values_.largest), 0));
  }

  std::string name_;
  std::uint32_t index_;
  std::vector<Finding>& findings_;
  Hdf5DatasetOptions options_;
  DataFile file_;
  std::optional<Hdf5Rows> rows_;
  GroupSummary summary_;
  ValueSurvey values_;
};

}  // namespace

std::string class_text(std::int64_t label, const std::vector<std::string>& names) {
  return label >= 0 && label < std::ssize(names) ? fmt::format("{} ({})", label, names[std::size_t(label)])
                                                 : std::to_string(label);
}

std::optional<GroupSummary> check_group(const std::string& path, const std::string& name, std::uint32_t index,
                                        std::vector<Finding>& findings, Duplicates& duplicates,
                                        const CheckProgress& progress) {
  GroupCheck check(path, name, index, findings);
  if (!check.check_shape()) return std::nullopt;
  // Problems of labels or values are findings, so that the other checks still run.
  check.check_labels();
  try {
    check.check_values(duplicates, progress);
  } catch (const FileError& error) {
    findings.push_back({Verdict::wrong, name, "values", error.what()});
  }
  return check.take();
}

}  // namespace fq::detail
