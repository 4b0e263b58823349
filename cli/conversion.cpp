#include "fakequant/cli/conversion.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/tables/class_labels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/reader/label_values.h"
#include "fakequant/train/data/writer/split.h"

namespace fq::cli {
namespace {

using fq::detail::DataSetPart;
using fq::detail::DataSetSummary;
using fq::detail::kGroups;
using fq::detail::SampleType;
using nlohmann::ordered_json;

std::string labels_text(const fq::detail::Labels& labels, std::int64_t classes) {
  switch (labels.task) {
    case fq::detail::Task::classes:
      return classes_text(classes, labels.class_names);
    case fq::detail::Task::several:
      return fmt::format("several of {} labels", classes);
    case fq::detail::Task::real:
      return labels.values.rank() == 1 ? "real labels" : fmt::format("{} real labels", labels.values.dim(1));
    case fq::detail::Task::dense:
      return fmt::format("a label of {} classes for each place", classes);
    default:
      return "no labels";
  }
}

/// Groups that were asked for, or are drawn by default, and got no sample.
void note_empty_groups(const Flags& flags, const DataSetSummary& found, std::vector<std::string>& notes) {
  for (const auto& [flag, group] : {std::pair{"test", fq::detail::kTest}, {"val", fq::detail::kValidation}}) {
    if (!flags.knows(flag) || flags.number(flag, 0, 1) == 0 || found.rows[group] > 0) continue;
    notes.push_back(
        fmt::format("no sample is left for the group {}: of one of a kind the only one is for training; "
                    "evaluate and others that read it take --split train, or make it of another file",
                    flag));
  }
}

/// What should be doubted about the values.
void doubt_values(const SampleType& type, const DataSetSummary& found, std::vector<std::string>& notes) {
  if (type.tokens || !found.mean.empty()) return;
  const bool bytes = type.dtype == DType::u8 && type.shape.size() == 3;
  if (found.scale == 0 && found.smallest >= 0 && found.largest >= 128 && found.largest <= 255)
    notes.push_back(
        fmt::format("values go up to {}, and the network sees them so: --scale {:.9g} makes them 0 to "
                    "1; --scale 1 says that they are right",
                    found.largest, 1.0 / 255));
  if (bytes && found.scale == 1.0 / 255 && found.largest > 0 && found.largest < 128)
    notes.push_back(fmt::format("the largest value is {}, and 255 becomes 1: --scale {:.9g} makes it 1",
                                found.largest, 1 / found.largest));
}

ordered_json result_of(const std::string& path, const std::vector<Converting>& parts,
                       const DataSetSummary& found, const std::vector<std::string>& notes) {
  const SampleType& type = parts.front().samples->type();
  ordered_json groups = ordered_json::object();
  for (std::size_t i = 0; i < kGroups.size(); ++i)
    if (found.rows[i] > 0) groups[std::string(kGroups[i])] = found.rows[i];
  return {{"output", path},
          {"groups", groups},
          {"shape", type.shape},
          {"dtype", name(type.dtype)},
          {"scale", found.scale > 0 ? ordered_json(found.scale) : nullptr},
          {"task", fq::detail::task_names()[std::size_t(parts.front().labels.task)]},
          {"classes", found.classes},
          {"class_names", parts.front().labels.class_names},
          {"left_out", found.left_out},
          {"notes", notes}};
}

void print_groups(const std::vector<Converting>& parts, const DataSetSummary& found, Output& output) {
  const SampleType& type = parts.front().samples->type();
  for (std::size_t i = 0; i < kGroups.size(); ++i)
    if (found.rows[i] > 0)
      output.line(fmt::format("{:<6} {} samples of {} {}, {}", kGroups[i], found.rows[i],
                              to_string(type.shape), type.tokens ? "token ids" : name(type.dtype),
                              labels_text(parts.front().labels, found.classes)));
}

std::int64_t samples_of(const std::vector<Converting>& parts) {
  std::int64_t count = 0;
  for (const auto& part : parts) count += part.samples->size();
  return count;
}

}  // namespace

void ConversionBar::operator()(std::int64_t done) const {
  if (stop_requested()) throw Interrupted(label_, ": nothing was written");
  const double seconds = watch_.seconds();
  output_.progress({.label = label_,
                    .done = done,
                    .total = total_,
                    .accuracy = -1,
                    .samples_per_second = double(done) / std::max(seconds, 1e-9),
                    .seconds_left = seconds * double(total_ - done) / double(done),
                    .samples = "samples"});
}

void check_same(const std::vector<Converting>& parts, const Flags& flags) {
  const auto& first = parts.front();
  for (const auto& part : parts) {
    const SampleType &a = first.samples->type(), &b = part.samples->type();
    FQ_CHECK(a.shape == b.shape && a.dtype == b.dtype, flags.command(),
             "samples for training are {} {}, those for the test {} {}: they must be alike",
             to_string(a.shape), name(a.dtype), to_string(b.shape), name(b.dtype));
    FQ_CHECK(first.labels.task == part.labels.task, flags.command(),
             "one of the two has labels and the other has none: give both, or --task none");
    FQ_CHECK(first.labels.task == fq::detail::Task::none || first.labels.task == fq::detail::Task::classes ||
                 std::equal(first.labels.values.shape().begin() + 1, first.labels.values.shape().end(),
                            part.labels.values.shape().begin() + 1, part.labels.values.shape().end()),
             flags.command(), "labels for training are {}, those for the test {}: they must be alike",
             to_string(first.labels.values.shape()), to_string(part.labels.values.shape()));
  }
}

ordered_json write_converted(const Flags& flags, Output& output, std::vector<Converting>& parts,
                             fq::detail::DataSetOptions options, std::vector<std::string> notes) {
  if (const auto like = like_of(flags)) {
    const SampleType& type = parts.front().samples->type();
    FQ_CHECK(like->sample == type.shape && (type.tokens || like->dtype == type.dtype), flags.command(),
             "samples are {} {}, those of --like {} are {} {}: they must be alike", to_string(type.shape),
             name(type.dtype), flags.text("like"), to_string(like->sample), name(like->dtype));
    FQ_CHECK(!flags.given("scale") || like->how.mean.empty(), flags.command(),
             "--like {} has a mean and a deviation of its own: leave --scale out", flags.text("like"));
    options.how = like->how;
  }
  if (flags.given("scale")) options.scale = flags.number("scale", 1e-30, 1e30);
  if (flags.knows("normalize")) options.normalise |= flags.on("normalize");
  std::vector<DataSetPart> written;
  for (auto& part : parts) {
    if (part.groups.empty())
      part.groups = groups_of(flags, part.labels, part.samples->size(), parts.size() > 1);
    written.push_back({part.samples.get(), part.labels, part.groups});
  }
  const std::string path = flags.required("output");
  const GracefulStop graceful;
  const DataSetSummary found =
      write_data_set(path, written, options, ConversionBar(flags.command(), samples_of(parts), output));
  doubt_values(parts.front().samples->type(), found, notes);
  if (parts.front().labels.task == fq::detail::Task::classes && found.classes == 1)
    notes.emplace_back("all samples are of one class: a network has nothing to tell apart");
  note_empty_groups(flags, found, notes);
  print_groups(parts, found, output);
  if (found.left_out > 0) output.line(fmt::format("left out: {}", found.left_out));
  for (const auto& note : notes) output.line("note: " + note);
  output.line("written to " + path);
  return result_of(path, parts, found, notes);
}

}  // namespace fq::cli
