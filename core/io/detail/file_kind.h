#pragma once

/// What a file is that somebody gave in the place of another, for messages.

#include <string>

#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail {

/// Whether it begins as HDF5 files do, at byte 0 or behind a user block.
[[nodiscard]] bool has_hdf5_signature(const FileReader& file);

/// "a NumPy array", "a PNG image", "a directory of 12 .png files", by the first bytes, or else by the name;
/// "a text file" for what is printable, empty where it is not known or cannot be read. Never throws.
[[nodiscard]] std::string file_kind(const std::string& path);

}  // namespace fq::detail
