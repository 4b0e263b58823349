#pragma once

/// `fakequant import` of a folder of Hugging Face's transformers.

#include <optional>
#include <string>

#include "fakequant/export/onnx/import.h"
#include "fakequant/network/network.h"

namespace fq::cli {

/// Returns true if the network gives a class for each token, and notes that in its identity.
bool take_token_classes(Network& network, const ImportedModel& model);

/// Returns the network of a folder, with the renames of the file `map`. A language model has as many classes
/// for each token as there are tokens.
[[nodiscard]] Network transformer_network(const std::string& from, const ImportOptions& options,
                                          const std::optional<std::string>& map);

}  // namespace fq::cli
