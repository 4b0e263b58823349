#pragma once

/// Files of other kinds in the place of a data set.

#include <string>

namespace fq::detail {

/// What a data set is, for messages.
inline constexpr const char* kWantedDataSet =
    "a data set is an HDF5 file of groups, such as train and test, with x and y in each: docs/formats.md "
    "(Data sets) has the layout and the lines of Python that write it";

/// `path`, if it is HDF5. Throws FileError for anything else, saying what it is, and naming the command that
/// makes a data set of it; as FileReader for what cannot be read.
[[nodiscard]] const std::string& checked_data_set(const std::string& path);

}  // namespace fq::detail
