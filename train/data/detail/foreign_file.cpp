#include "fakequant/train/data/detail/foreign_file.h"

#include <filesystem>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail {
namespace {

/// Whether a folder's files are texts, by what file_kind says of it.
bool ends_in_text(const std::string& kind) { return kind.find(" .txt ") != kind.npos; }

/// The command that makes a data set of a file of that kind; empty where there is none.
std::string way_from(const std::string& path, const std::string& kind) {
  const auto begins = [&](const char* text) { return kind.starts_with(text); };
  const auto ends = [&](const char* text) {
    return path.ends_with(text) || path.ends_with(text + std::string(".gz"));
  };
  std::error_code none;
  std::string way;
  if (std::filesystem::is_directory(path, none)) way = ends_in_text(kind) ? "from-text" : "from-images";
  if (begins("a NumPy array") || begins("an archive of NumPy arrays")) way = "from-npy";
  if (begins("an IDX file") || ends("-ubyte")) way = "from-idx";
  if (begins("a Parquet file")) way = "from-parquet";
  if (way.empty() && (ends(".csv") || ends(".tsv"))) way = "from-csv";
  if (way.empty() && begins("a text file")) way = "from-text";
  return way.empty() ? way
                     : fmt::format("fakequant dataset {} {} -o data.h5 makes a data set of it; ", way, path);
}

}  // namespace

const std::string& checked_data_set(const std::string& path) {
  std::error_code error;
  const bool directory = std::filesystem::is_directory(path, error);
  if (!directory && has_hdf5_signature(FileReader(path))) return path;
  const std::string kind = file_kind(path);
  const std::string what =
      directory ? "is " + kind : fmt::format("is not an HDF5 file{}", kind.empty() ? "" : " but " + kind);
  throw FileError(path, "",
                  fmt::format("[dataset] {} {}: {}{}", path, what, way_from(path, kind), kWantedDataSet));
}

}  // namespace fq::detail
