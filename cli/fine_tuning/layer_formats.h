#pragma once

/// A format for each layer of a network that is to be fine-tuned, within a number of bits.

#include <memory>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/quantization.h"

namespace fq::cli {

/// --effective-bits and --formats.
void add_layer_format_flags(FlagSet& set);
/// Whether they ask for a format for each layer.
[[nodiscard]] bool chooses_formats(const Flags& flags);
/// Throws ArgumentError for numbers out of range, formats that there are none of, and --formats alone.
void check_layer_formats(const Flags& flags);

/// Throws ArgumentError where they cannot be chosen for that network: fewer bits than the formats reach, or
/// no classes. The network stays as it is.
void check_formats_for(const Network& network, const Flags& flags, const Quantization& base);

/// Of the formats of --preset and --formats those whose sum of damages is least with no more than
/// --effective-bits a weight (train/sensitivity/auto_quantize.h), measured on the images of --samples;
/// target, scale and methods are those of `base`. The network stays as it is. Tells the plan.
[[nodiscard]] Quantization choose_formats(const Network& network, const Flags& flags,
                                          const Quantization& base,
                                          const std::shared_ptr<const Dataset>& data, Output& output);

}  // namespace fq::cli
