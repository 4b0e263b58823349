#pragma once

/// What token ids stand for, as a data set keeps it.

#include <string>

#include "fakequant/train/data/reader/tokens.h"
#include "fakequant/train/data/writer/data_set_file.h"

namespace fq::detail {

/// How a data set's texts became tokens. Throws FileError for a file that is no data set of text.
[[nodiscard]] Tokenizer read_tokenizer(const std::string& path);
/// The same where the file keeps a tokenizer.json; null where it has none, and for what is no data set.
[[nodiscard]] std::shared_ptr<const TokenizerFile> read_tokenizer_file(const std::string& path);
/// What a data set keeps of a tokenizer.
[[nodiscard]] DataSetOptions options_of(const Tokenizer& tokenizer);

}  // namespace fq::detail
