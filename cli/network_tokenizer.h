#pragma once

/// The tokenizer of a network, which its checkpoint keeps: of its data set or of an imported GGUF file.

#include <string>

#include "fakequant/export/gguf/file.h"
#include "fakequant/network/network.h"
#include "fakequant/train/data/detail/tokens.h"
#include "fakequant/train/metrics.h"

namespace fq::cli {

/// A network without a tokenizer takes that of the data set at `path`, where there is one. Throws
/// ArgumentError for data whose tokens are others than the network's.
void take_tokenizer(Network& network, const Dataset& data, const std::string& path,
                    const std::string& function);
/// Returns the table of the tokenizer.json that the network keeps; null without.
[[nodiscard]] std::shared_ptr<const fq::detail::TokenTable> token_table(const Network& network);
/// Of the tokens that the network's classes are. Throws ArgumentError for a network that does not tell the
/// next token of each; `checkpoint` names it.
[[nodiscard]] fq::detail::Tokenizer tokenizer_of(const Network& network, const std::string& checkpoint,
                                                 const std::string& function);
/// The characters of tokens that are classes, where a tokenizer.json says them.
[[nodiscard]] MetricOptions metric_options_of(const Network& network);

/// Keeps the file's tokenizer in a network of its tokens, as that of a data set: `generate` and `dataset
/// from-text` read it. A warning says why one is not taken.
void take_gguf_tokenizer(Network& network, const GgufModel& model, const std::string& file);

}  // namespace fq::cli
