#pragma once

/// Reads the HDF5 structures around the elements of fakequant files without the HDF5 library, which crashes
/// on maliciously crafted files. Supports the structures that HDF5 1.8 to 1.14 write for fakequant
/// (superblock 0, groups by symbol tables, object headers of version 1) and rejects all others. Reference:
/// HDF5 File Format Specification 3.0.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail {

/// Contents of an object header.
struct TreeObject {
  std::optional<std::int64_t> nodes, heap;  // group: offsets
  std::optional<std::int64_t> elements;     // dataset: offset of the elements, -1 without elements
  Shape shape;
  std::map<std::string, std::string> texts;  // attributes
};

/// Returns the datasets of a fakequant file by name, in time linear in its size. Throws FileError for other
/// files, links, objects with two names, groups more than 64 deep, and structures outside of the file.
[[nodiscard]] std::map<std::string, TreeObject> read_hdf5_tree(const FileReader& file);

}  // namespace fq::detail
