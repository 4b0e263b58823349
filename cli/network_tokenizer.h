#pragma once

/// The tokenizer of a network, from its data set. Checkpoints store it.

#include <string>

#include "fakequant/network/network.h"
#include "fakequant/train/data/detail/tokens.h"
#include "fakequant/train/metrics.h"

namespace fq::cli {

/// Copies the tokenizer of the data set at `path`, if there is one, to a network without a tokenizer. Throws
/// ArgumentError if the tokens of data and network differ.
void take_tokenizer(Network& network, const Dataset& data, const std::string& path,
                    const std::string& function);
/// Returns the tokenizer of the network's classes. Throws ArgumentError for a network that does not predict
/// the next token of each position. `checkpoint` names the network in the message.
[[nodiscard]] fq::detail::Tokenizer make_tokenizer(const Network& network, const std::string& checkpoint,
                                                   const std::string& function);
/// Returns the characters of the tokens that are classes, if the network has a tokenizer.json.
[[nodiscard]] MetricOptions token_metric_options(const Network& network);

}  // namespace fq::cli
