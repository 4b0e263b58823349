#include "fakequant/train/data/reader/class_folders.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/detail/file_kind.h"
#include "fakequant/train/data/writer/split.h"

namespace fq::detail {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

std::string small(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

std::optional<std::uint8_t> group_of(const std::string& folder) {
  static const std::map<std::string, std::uint8_t> groups{
      {"train", kTrain},           {"training", kTrain}, {"val", kValidation}, {"valid", kValidation},
      {"validation", kValidation}, {"test", kTest},      {"testing", kTest}};
  const auto found = groups.find(small(folder));
  return found == groups.end() ? std::nullopt : std::optional(found->second);
}

bool passed_over(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') || name == "__MACOSX";
}

/// Entries of a folder by their names.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (!passed_over(at->path())) found.push_back(at->path());
  if (error)
    throw FileError(folder.string(), "",
                    fmt::format("[dataset] {} cannot be read: {}", folder.string(), error.message()));
  std::ranges::sort(found);
  return found;
}

bool is_folder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

/// Whether folders are those of groups: all are named so, or one is that has folders in it. A class may be
/// called train.
bool names_groups(const std::vector<fs::path>& entries) {
  bool all = true, any = false, deep = false;
  for (const auto& entry : entries) {
    if (!is_folder(entry)) continue;
    const bool named = group_of(entry.filename().string()).has_value();
    all &= named;
    any |= named;
    deep |= named && std::ranges::any_of(entries_of(entry), is_folder);
  }
  return any && (all || deep);
}

class Listing {
 public:
  Listing(const std::string& root, const Names& endings, const Names& known)
      : root_(root), endings_(endings), known_(known) {}

  FolderListing take() {
    if (!is_folder(root_)) refuse_root();
    const auto entries = entries_of(root_);
    if (names_groups(entries))
      take_groups(entries);
    else
      take_classes(root_, kTrain);
    finish();
    return std::move(listing_);
  }

 private:
  void take_groups(const std::vector<fs::path>& entries) {
    listing_.split = true;
    for (const auto& entry : entries) {
      const auto group = group_of(entry.filename().string());
      if (is_folder(entry) && !group)
        throw FileError(
            root_, "",
            fmt::format("[dataset] {} has folders of groups, such as train and test, beside '{}': move "
                        "classes into train",
                        root_, entry.filename().string()));
      if (is_folder(entry)) take_classes(entry, *group);
    }
  }

  void take_classes(const fs::path& folder, std::uint8_t group) {
    for (const auto& entry : entries_of(folder))
      if (is_folder(entry))
        take_class(entry, group);
      else if (takes(entry))
        without_class_.push_back({entry.string(), 0, group});
  }

  void take_class(const fs::path& folder, std::uint8_t group) {
    const std::string name = valid_utf8(folder.filename().string());
    std::vector<std::string> found;
    take_below(folder, found, 0);
    (found.empty() ? empty_ : classes_).insert(name);
    for (auto& path : found) files_.push_back({name, {std::move(path), 0, group}});
  }

  void take_below(const fs::path& folder, std::vector<std::string>& found, int depth) {
    constexpr int kDeepest = 32;  // links may lead round
    for (const auto& entry : entries_of(folder))
      if (!is_folder(entry)) {
        if (takes(entry)) found.push_back(entry.string());
      } else if (depth < kDeepest && !fs::is_symlink(entry)) {
        take_below(entry, found, depth + 1);
      }
  }

  bool takes(const fs::path& file) {
    const bool known = std::ranges::find(endings_, small(file.extension().string())) != endings_.end();
    listing_.others += known ? 0 : 1;
    return known;
  }

  void finish() {
    if (!files_.empty() && !without_class_.empty())
      throw FileError(
          root_, "",
          fmt::format("[dataset] {} has {} files beside folders of classes, such as {}: move them into "
                      "one, or away",
                      root_, without_class_.size(), without_class_.front().path));
    listing_.files = std::move(without_class_);
    std::ranges::set_difference(empty_, classes_, std::back_inserter(listing_.empty_classes));
    if (!files_.empty()) take_labels();
    if (listing_.files.empty()) refuse_empty();
  }

  void take_labels() {
    listing_.classes = known_.empty() ? Names(classes_.begin(), classes_.end()) : known_;
    std::map<std::string, std::int64_t> labels;
    for (const auto& name : listing_.classes) labels.emplace(name, std::int64_t(labels.size()));
    for (auto& [name, file] : files_) {
      const auto found = labels.find(name);
      if (found == labels.end())
        throw FileError(root_, "",
                        fmt::format("[dataset] {} has the folder '{}', which is none of the classes given{}",
                                    root_, name, did_you_mean(name, listing_.classes)));
      file.label = found->second;
      listing_.files.push_back(std::move(file));
    }
  }

  [[noreturn]] void refuse_root() const {
    const std::string kind = file_kind(root_);
    throw FileError(root_, "",
                    fmt::format("[dataset] {} is {}: give a folder with a folder for each class{}", root_,
                                kind.empty() ? "no folder" : kind + ", no folder",
                                kind.find("archive") == kind.npos ? "" : ", as it is when unpacked"));
  }

  [[noreturn]] void refuse_empty() const {
    throw FileError(
        root_, "",
        fmt::format("[dataset] {} has no file that ends in {}{}{}", root_, fmt::join(endings_, ", "),
                    listing_.others > 0 ? fmt::format(", but {} others", listing_.others) : "",
                    listing_.empty_classes.empty()
                        ? ""
                        : fmt::format("; its folders {} have none", names_of_empty())));
  }

  [[nodiscard]] std::string names_of_empty() const {
    Names names(
        listing_.empty_classes.begin(),
        listing_.empty_classes.begin() + std::min<std::ptrdiff_t>(8, std::ssize(listing_.empty_classes)));
    return fmt::format("{}", fmt::join(names, ", "));
  }

  std::string root_;
  const Names& endings_;
  const Names& known_;
  FolderListing listing_;
  std::set<std::string> classes_, empty_;
  std::vector<FolderFile> without_class_;
  std::vector<std::pair<std::string, FolderFile>> files_;
};

}  // namespace

FolderListing list_folder(const std::string& folder, const Names& endings, const Names& known) {
  return Listing(folder, endings, known).take();
}

}  // namespace fq::detail
