#pragma once

/// Networks of files that other tools wrote: ONNX, GGUF, folders of Hugging Face transformers, packed
/// weights.

#include <memory>
#include <string>
#include <vector>

#include "fakequant/export/onnx/import.h"
#include "fakequant/export/quantized/quantized_model.h"
#include "fakequant/export/safetensors/weights.h"
#include "fakequant/network/network.h"
#include "fakequant/train/data/detail/token_table.h"

namespace fq::detail {

/// A network from a file, and the model that the file describes.
struct ImportedNetwork {
  ImportedModel model;
  Network network;
};

/// Reads an ONNX or GGUF file with its codes and scales, and the tokenizer of a GGUF file. Throws FileError
/// naming the file.
[[nodiscard]] ImportedNetwork import_model_file(const std::string& path, const ImportOptions& options);

/// Reads a folder of transformers, with the renames of tensors. A language model has one class per token of
/// the vocabulary.
[[nodiscard]] Network import_folder(const std::string& path, const ImportOptions& options,
                                    const std::vector<WeightRename>& renames);

/// Quantizes a network by the packed weights of the safetensors file `weights`. Does nothing for a file of
/// floats.
void quantize_as_packed(Network& network, const std::string& weights);

/// Returns the table of the network's tokenizer.json; null without one.
[[nodiscard]] std::shared_ptr<const TokenTable> token_table(const Network& network);

}  // namespace fq::detail
