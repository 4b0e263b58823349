#pragma once

/// Object headers of version 1 in HDF5 files of ours.

#include "fakequant/core/io/detail/hdf5_tree.h"
#include "fakequant/core/io/detail/tree/structure_reader.h"

namespace fq::detail {

/// What the header at `at` says; `name` is for errors. Throws FileError for headers of other versions, in too
/// many pieces, with links, and for datasets that are not stored in one piece.
[[nodiscard]] TreeObject read_object_header(StructureReader& from, std::int64_t at, const std::string& name);

}  // namespace fq::detail
