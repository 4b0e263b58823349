#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/cli/commands/dataset.h"
#include "fakequant/cli/conversion.h"
#include "fakequant/cli/flags/listed_words.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/train/data/reader/array_source.h"
#include "fakequant/train/data/reader/label_values.h"
#include "fakequant/train/data/reader/row_source.h"

namespace fq::cli {
namespace {

using fq::detail::ArrayFile;
using fq::detail::ArraySource;
using fq::detail::open_npy;
using Names = std::vector<std::string>;

/// An array by its file, and in an archive its key.
struct ArrayName {
  std::string file, key;
};

/// The arrays of one part: of samples and, unless the file is empty, of labels.
struct PartNames {
  ArrayName x, y;
};

/// The first of `known` that is there.
std::string key_among(const Names& keys, const Names& known) {
  const auto found = std::ranges::find_if(
      known, [&](const auto& key) { return std::ranges::find(keys, key) != keys.end(); });
  return found == known.end() ? std::string() : *found;
}

/// The arrays of an archive, by the names that archives give them.
std::vector<PartNames> parts_of_archive(const Flags& flags, const std::string& file) {
  const Names keys = fq::detail::npz_keys(file);
  const bool lone = keys.size() == 1;
  std::string x = flags.text("x-key"), y = flags.text("y-key");
  if (x.empty())
    x = lone ? keys[0] : key_among(keys, {"x_train", "train_images", "x", "X", "images", "data"});
  FQ_CHECK(!x.empty(), flags.command(), "{} has the arrays {}: say which holds the samples, by --x-key", file,
           fmt::join(keys, ", "));
  if (y.empty())
    y = key_among(keys, x == "x_train"        ? Names{"y_train"}
                        : x == "train_images" ? Names{"train_labels"}
                                              : Names{"y", "Y", "labels", "target", "targets"});
  std::vector<PartNames> parts{{{file, x}, y.empty() ? ArrayName{} : ArrayName{file, y}}};
  if (flags.given("x-key")) return parts;
  const std::string test = x == "x_train" ? "x_test" : x == "train_images" ? "test_images" : "";
  const std::string answers = x == "x_train" ? "y_test" : "test_labels";
  if (key_among(keys, {test}).empty()) return parts;
  parts.push_back(
      {{file, test}, key_among(keys, {answers}).empty() ? ArrayName{} : ArrayName{file, answers}});
  return parts;
}

/// The samples of one array, or of several that "ids,mask" names side by side.
std::unique_ptr<fq::detail::SampleSource> samples_of(const ArrayName& name, const Flags& flags,
                                                     Names& notes) {
  const Names keys = listed_words(name.key);
  if (keys.size() < 2) {
    const auto layout = fq::detail::array_layout(flags.choice("layout", fq::detail::array_layouts()));
    return std::make_unique<ArraySource>(open_npy(name.file, name.key), layout, notes);
  }
  FQ_CHECK(!flags.given("layout"), flags.command(),
           "--layout is of one array: several, --x-key {}, are rows of all their elements", name.key);
  std::vector<ArrayFile> arrays;
  std::string places;
  std::int64_t begin = 0;
  for (const auto& key : keys) {
    arrays.push_back(open_npy(name.file, key));
    const Shape& shape = arrays.back().shape();
    const std::int64_t end = begin + arrays.back().row_elements();
    places += fmt::format("{}{} {} {}..{}", places.empty() ? "" : ", ", key,
                          to_string(Shape(shape.begin() + 1, shape.end())), begin, end - 1);
    begin = end;
  }
  notes.push_back(fmt::format("{}: rows of {} elements, {}", name.file, begin, places));
  return std::make_unique<fq::detail::RowSource>(std::move(arrays));
}

std::vector<PartNames> parts_of(const Flags& flags) {
  const std::string file = flags.required("file");
  std::vector<PartNames> parts = fq::detail::npz_keys(file).empty() ? std::vector<PartNames>{{{file, {}}, {}}}
                                                                    : parts_of_archive(flags, file);
  if (flags.given("labels")) parts[0].y = {flags.text("labels"), {}};
  if (flags.given("test-file")) {
    parts.resize(1);
    parts.push_back({{flags.text("test-file"), flags.text("x-key")}, {flags.text("test-labels"), {}}});
  }
  FQ_CHECK(!flags.given("test-labels") || flags.given("test-file"), flags.command(),
           "--test-labels are those of --test-file, which is missing");
  return parts;
}

}  // namespace

FlagSet from_npy_flags() {
  FlagSet set("dataset from-npy", "Makes a data set of NumPy arrays: samples [N, ..] and their labels.",
              "FILE [--labels FILE] -o FILE [flags]");
  set.group("Arrays")
      .argument("file", "FILE", "samples: .npy, or .npz with x and y, or x_train, y_train, x_test and y_test")
      .value("labels", "FILE", "labels: .npy, numbers or text (without it of a .npz its y, and else none)")
      .value("test-file", "FILE", "samples for the group test, in place of a share")
      .value("test-labels", "FILE", "their labels")
      .value("x-key", "NAME,..",
             "the array of samples in a .npz; several are put side by side in rows, for networks of several "
             "inputs: ids,mask")
      .value("y-key", "NAME", "the array of labels in a .npz")
      .value(
          "layout", "NAME",
          "what the axes of samples are: auto, nchw, nhwc, nhw (images of one channel), ncl (signals), flat, "
          "or tokens",
          "auto")
      .value("task", "NAME",
             "what labels are: classes, several (0 and 1 for each), real (numbers), dense (a class for each "
             "place), none",
             "classes");
  add_conversion_flags(set, true);
  add_plain_flags(set);
  return set;
}

nlohmann::ordered_json from_npy(const Flags& flags, Output& output) {
  const auto task = fq::detail::task_of(flags.choice("task", fq::detail::task_names()));
  static_cast<void>(flags.choice("layout", fq::detail::array_layouts()));
  Names names = given_class_names(flags), notes;
  std::vector<Converting> parts;
  for (const auto& [x, y] : parts_of(flags)) {
    Converting part;
    part.samples = samples_of(x, flags, notes);
    if (!y.file.empty()) part.labels = labels_of(open_npy(y.file, y.key), task, part.samples->size(), names);
    if (!parts.empty()) part.groups.assign(std::size_t(part.samples->size()), fq::detail::kTest);
    if (names.empty()) names = part.labels.class_names;
    parts.push_back(std::move(part));
  }
  check_same(parts, flags);
  return write_converted(flags, output, parts, {}, std::move(notes));
}

}  // namespace fq::cli
