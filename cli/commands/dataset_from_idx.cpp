#include <filesystem>
#include <nlohmann/json.hpp>

#include "fakequant/cli/commands/dataset.h"
#include "fakequant/cli/conversion.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/reader/array_source.h"
#include "fakequant/train/data/reader/label_values.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;

struct PartFiles {
  std::string x, y;
};

/// The file of MNIST by that name, as it is or in gzip; empty where there is none.
std::string file_in(const std::string& folder, const std::string& name) {
  for (std::string other : {name, name.substr(0, name.rfind('-')) + "." + name.substr(name.rfind('-') + 1)})
    for (const char* ending : {"", ".gz"}) {
      const auto path = fs::path(folder) / (other + ending);
      std::error_code none;
      if (fs::is_regular_file(path, none)) return path.string();
    }
  return {};
}

std::vector<PartFiles> files_of(const Flags& flags) {
  const std::string file = flags.required("file");
  std::error_code none;
  if (!fs::is_directory(file, none)) {
    std::vector<PartFiles> parts{{file, flags.text("labels")}};
    if (flags.given("test-file")) parts.push_back({flags.text("test-file"), flags.text("test-labels")});
    return parts;
  }
  const PartFiles train{file_in(file, "train-images-idx3-ubyte"), file_in(file, "train-labels-idx1-ubyte")};
  const PartFiles test{file_in(file, "t10k-images-idx3-ubyte"), file_in(file, "t10k-labels-idx1-ubyte")};
  FQ_CHECK(!train.x.empty(), flags.command(),
           "{} has no train-images-idx3-ubyte, nor that with .gz: give the file of images, and --labels",
           file);
  std::vector<PartFiles> parts{train};
  if (!test.x.empty()) parts.push_back(test);
  return parts;
}

}  // namespace

FlagSet from_idx_flags() {
  FlagSet set("dataset from-idx",
              "Makes a data set of IDX files, as MNIST and those after it come; gzip is read as it is.",
              "FILE|FOLDER [--labels FILE] -o FILE [flags]");
  set.group("Files")
      .argument("file", "FILE|FOLDER", "images, or a folder with the four files of MNIST under their names")
      .value("labels", "FILE", "their labels")
      .value("test-file", "FILE", "images for the group test, in place of a share")
      .value("test-labels", "FILE", "their labels");
  add_conversion_flags(set, true);
  add_plain_flags(set);
  return set;
}

nlohmann::ordered_json from_idx(const Flags& flags, Output& output) {
  const auto names = given_class_names(flags);
  std::vector<std::string> notes;
  std::vector<Converting> parts;
  for (const auto& [x, y] : files_of(flags)) {
    Converting part;
    part.samples = std::make_unique<fq::detail::ArraySource>(fq::detail::open_idx(x),
                                                             fq::detail::ArrayLayout::automatic, notes);
    if (!y.empty())
      part.labels =
          labels_of(fq::detail::open_idx(y), fq::detail::Task::classes, part.samples->size(), names);
    if (!parts.empty()) part.groups.assign(std::size_t(part.samples->size()), fq::detail::kTest);
    parts.push_back(std::move(part));
  }
  check_same(parts, flags);
  return write_converted(flags, output, parts, {}, std::move(notes));
}

}  // namespace fq::cli
