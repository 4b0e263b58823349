#pragma once

/// What token ids stand for, as a data set keeps it.

#include <string>
#include <vector>

namespace fq::detail {

/// The words of a data set by their ids; none where tokens are bytes. Throws FileError for a file that is no
/// data set of text.
[[nodiscard]] std::vector<std::string> read_vocabulary(const std::string& path);

}  // namespace fq::detail
