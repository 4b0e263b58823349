#pragma once

/// How texts become tokens.

#include <optional>
#include <string>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/train/data/reader/tokens.h"

namespace fq::cli {

/// --tokens, --vocabulary and --tokenizer.
void add_tokenizer_flags(FlagSet& set);
/// --tokens, or `fallback`.
[[nodiscard]] std::string unit_of(const Flags& flags, const std::string& fallback);
/// Of --tokenizer, a tokenizer.json, or of --like, a data set; none without either. Throws ArgumentError
/// where both are given and their tokens differ, and for --tokens or --vocabulary beside them.
[[nodiscard]] std::optional<fq::detail::Tokenizer> given_tokenizer(const Flags& flags);

}  // namespace fq::cli
