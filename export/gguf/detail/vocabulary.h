#pragma once

/// The keys of a tokenizer in GGUF.

#include "fakequant/export/gguf/file.h"

namespace fq::detail {

/// A vocabulary of tokens as llama.cpp's "gpt2" tokenizer has it: each byte of a token as the character that
/// GPT-2 writes for it (a space is U+0120), and the merges as they are. Throws ArgumentError unless there are
/// `size` tokens, each another.
void add_vocabulary(GgufModel& model, const std::vector<std::string>& tokens,
                    const std::vector<std::string>& merges, const std::string& pattern, std::int64_t size);

}  // namespace fq::detail
