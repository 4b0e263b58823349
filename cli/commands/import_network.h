#pragma once

/// Networks of quantized files and of folders of Hugging Face transformers, for `fakequant import`.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "fakequant/export/onnx/import.h"
#include "fakequant/export/quantized/quantized_model.h"
#include "fakequant/network/network.h"

namespace fq::cli {

/// Returns the network of a file, with the codes and scales of the file. Throws FileError naming the file.
[[nodiscard]] Network quantized_network(const QuantizedModel& model, const std::string& file);

/// Quantizes a float network by the quantization of a file. Throws FileError naming the file.
void take_quantization(Network& network, const FileQuantization& quantization, const std::string& file);

/// Quantizes a network by the packed weights of the safetensors file `weights`. Does nothing for a file of
/// floats.
void take_packed(Network& network, const std::string& weights);

/// Returns "on the grids of the file: 5 activations of uint8, 4 weights of int8; target ort".
[[nodiscard]] std::string describe_grids(const Network& network);

/// Returns true if the network predicts a class for each token, and records this in its identity.
bool take_token_classes(Network& network, const ImportedModel& model);

/// Returns the network of a folder, with the renames of the file `map`. A language model has one class per
/// token of the vocabulary.
[[nodiscard]] Network transformer_network(const std::string& from, const ImportOptions& options,
                                          const std::optional<std::string>& map);

}  // namespace fq::cli
