#pragma once

/// `fakequant import` of a folder of Hugging Face's transformers.

#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/network/network.h"

namespace fq::cli {

/// Whether the network gives a class for each token; then its identity says so.
bool take_token_classes(Network& network, const ImportedModel& model);

/// The network, with the renames of --map; of language models each token has as many classes as there are
/// tokens.
[[nodiscard]] Network transformer_network(const std::string& from, const ImportOptions& options,
                                          const Flags& flags);
/// Writes its checkpoint to --output.
nlohmann::ordered_json import_transformer(const std::string& from, const ImportOptions& options,
                                          const Flags& flags, Output& output);

}  // namespace fq::cli
