#pragma once

/// Types and shapes of the parts of older state files, whose listing does not tell them.

#include <vector>

#include "fakequant/core/io/detail/state_header.h"

namespace fq::detail {

/// Takes them from the HDF5 structures (hdf5_tree.h). Throws FileError where these and the listing differ.
void take_listed_types(const FileReader& file, std::vector<ListedDataset>& listing);

}  // namespace fq::detail
