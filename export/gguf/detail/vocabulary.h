#pragma once

/// The keys of a tokenizer in GGUF.

#include "fakequant/export/gguf/model.h"

namespace fq::detail {

/// The vocabulary of `options` as llama.cpp's "gpt2" tokenizer has it: each byte of a token as the character
/// that GPT-2 writes for it (a space is U+0120), and the merges as they are. Throws ArgumentError unless
/// there are `size` tokens, each another, and control tokens among them.
void add_vocabulary(GgufModel& model, const GgufOptions& options, std::int64_t size);

}  // namespace fq::detail
