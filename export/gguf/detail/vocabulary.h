#pragma once

/// The keys of a tokenizer in GGUF.

#include <string_view>

#include "fakequant/export/gguf/model.h"
#include "fakequant/train/data/detail/token_table.h"

namespace fq::detail {

/// Writes the vocabulary of `options` for llama.cpp's "gpt2" tokenizer. Each byte of a token becomes the
/// character that GPT-2 uses for it (a space is U+0120). Merges are unchanged. With merges, rows of the
/// network without a token get unused tokens. Throws ArgumentError unless there are `size` different tokens
/// and all control tokens exist.
void add_vocabulary(GgufModel& model, const GgufOptions& options, std::int64_t size);

/// Sets vocabulary, merges, pattern and control tokens of `options` if the table is byte-level BPE. Returns
/// false for other tables, which llama.cpp's "gpt2" tokenizer cannot hold. Throws ArgumentError for a
/// "pre_tokenizer" whose regular expression has no name in llama.cpp.
[[nodiscard]] bool take_tokens(const TokenTable& table, GgufOptions& options);
/// Returns the regular expression of a pattern by llama.cpp's name: "gpt-2", "llama-bpe" or "qwen2". Throws
/// ArgumentError for other names.
[[nodiscard]] std::string_view pattern_regex(std::string_view name);

}  // namespace fq::detail
