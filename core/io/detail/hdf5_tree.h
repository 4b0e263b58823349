#pragma once

/// The HDF5 structures around the elements of our own files, read without HDF5, which is not to be trusted
/// with files of others: it fails under those that are made for it. Read is what HDF5 1.8 to 1.14 write for
/// us (superblock 0, groups by symbol tables, object headers of version 1), all else is refused. HDF5 File
/// Format Specification 3.0.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail {

/// What an object header says.
struct TreeObject {
  std::optional<std::int64_t> nodes, heap;  // of a group
  std::optional<std::int64_t> elements;     // of a dataset: where they begin, -1 for none
  Shape shape;
  std::map<std::string, std::string> texts;  // attributes
};

/// The datasets of a file of ours by their names, in time linear in its size. Throws FileError for what is
/// none, links, objects of two names, groups more than 64 deep, and structures that lead out of the file.
[[nodiscard]] std::map<std::string, TreeObject> read_hdf5_tree(const FileReader& file);

}  // namespace fq::detail
