#pragma once

/// Finding objects of a file without leaving it: HDF5 follows soft and external links wherever they lead, to
/// other files, pipes and devices. It is not a public header: it needs <hdf5.h>.

#include "fakequant/core/io/detail/hdf5.h"

namespace fq::detail::h5 {

/// Whether the file has an object of that name ("train/x"). Throws FileError where a step of the name is a
/// soft, external or user-defined link. `path` is the file's, for messages.
[[nodiscard]] bool has_object(hid_t file, const std::string& path, const std::string& name);

}  // namespace fq::detail::h5
