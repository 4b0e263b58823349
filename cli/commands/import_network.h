#pragma once

/// Networks of quantized files and of folders of Hugging Face transformers, for `fakequant import`.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "fakequant/export/onnx/import.h"
#include "fakequant/export/quantized/quantized_model.h"
#include "fakequant/network/network.h"

namespace fq::cli {

/// The network of a file, with its codes and scales where it has such. Throws FileError naming the file.
[[nodiscard]] Network quantized_network(const QuantizedModel& model, const std::string& file);

/// Quantizes a float network as a file says. Throws FileError naming the file.
void take_quantization(Network& network, const FileQuantization& quantization, const std::string& file);

/// The same by the safetensors file that the network's weights are from; nothing for one of floats.
void take_packed(Network& network, const std::string& weights);

/// "on the grids of the file: 5 activations of uint8, 4 weights of int8; target ort".
[[nodiscard]] std::string describe_grids(const Network& network);

/// Returns true if the network gives a class for each token, and notes that in its identity.
bool take_token_classes(Network& network, const ImportedModel& model);

/// Returns the network of a folder, with the renames of the file `map`. A language model has as many classes
/// for each token as there are tokens.
[[nodiscard]] Network transformer_network(const std::string& from, const ImportOptions& options,
                                          const std::optional<std::string>& map);

}  // namespace fq::cli
