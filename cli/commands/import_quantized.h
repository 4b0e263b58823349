#pragma once

/// `fakequant import` of files that are quantized.

#include <nlohmann/json.hpp>
#include <string>

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

}  // namespace fq::cli
