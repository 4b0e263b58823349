#pragma once

/// What token ids stand for, as a data set keeps it.

#include <string>

#include "fakequant/train/data/reader/tokens.h"

namespace fq::detail {

/// How a data set's texts became tokens. Throws FileError for a file that is no data set of text.
[[nodiscard]] Tokenizer read_tokenizer(const std::string& path);

}  // namespace fq::detail
