#pragma once

/// A folder of files, one folder a class, as samples.

#include <cstdint>
#include <string>
#include <vector>

namespace fq::detail {

struct FolderFile {
  std::string path;
  std::int64_t label = 0;
  std::uint8_t group = 0;  ///< of split.h; train where the folder says nothing
};

/// What lies in a folder: FOLDER/CLASS/../file, files right in FOLDER, which have no labels, or either of
/// them below FOLDER/train, FOLDER/val and FOLDER/test (and the longer names of these), where all its folders
/// are named so, or one of them has folders in it. Classes and files in the order of their bytes.
struct FolderListing {
  std::vector<FolderFile> files;
  std::vector<std::string> classes;        ///< names of folders, as UTF-8; none without labels
  std::vector<std::string> empty_classes;  ///< folders without such a file, which are no classes
  bool split = false;                      ///< whether folders name the groups
  std::int64_t others = 0;                 ///< files with other endings
};

/// Files whose names end in one of `endings` (in small letters, ".png"; any case counts). Those that begin
/// with a dot are passed over. `known` are the classes where they are given. Throws FileError for what is no
/// folder, for one without such a file, for files both with and without a class, and for folders that are not
/// in `known`.
[[nodiscard]] FolderListing list_folder(const std::string& folder, const std::vector<std::string>& endings,
                                        const std::vector<std::string>& known);

}  // namespace fq::detail
