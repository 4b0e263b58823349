#pragma once

/// `fakequant dataset from-text --windows`: one long text, for networks that tell the next token.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/cli/command.h"

namespace fq::cli {

/// The flags that this way adds to those of from-text.
void add_window_flags(FlagSet& set);
/// Writes the data set. Throws ArgumentError for flags of texts that stand each for itself.
nlohmann::ordered_json from_text_windows(const Flags& flags, Output& output);

}  // namespace fq::cli
