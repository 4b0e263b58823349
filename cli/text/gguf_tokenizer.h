#pragma once

/// The tokenizer of an imported GGUF file.

#include <string>

#include "fakequant/export/gguf/file.h"
#include "fakequant/network/network.h"

namespace fq::cli {

/// Keeps the file's tokenizer in a network of its tokens, as that of a data set: `generate` and `dataset
/// from-text` read it. A warning says why one is not taken.
void take_gguf_tokenizer(Network& network, const GgufModel& model, const std::string& file);

}  // namespace fq::cli
