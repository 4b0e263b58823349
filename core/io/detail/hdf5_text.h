#pragma once

/// Strings in HDF5 attributes: it needs <hdf5.h>.

#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/io/detail/hdf5.h"

namespace fq::detail::h5 {

/// The values of an open attribute of strings as UTF-8, as Hdf5Reader::texts gives them; nullopt for one of
/// another type. `path`, `object` and `name` are for messages. The caller holds the lock.
[[nodiscard]] std::optional<std::vector<std::string>> read_texts(hid_t attribute, const std::string& path,
                                                                 const std::string& object,
                                                                 const std::string& name);

}  // namespace fq::detail::h5
