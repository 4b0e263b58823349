#pragma once

/// Networks that begin with weights of a file: --model, --init and --map.

#include <optional>
#include <string>

#include "fakequant/cli/flags/planned_files.h"
#include "fakequant/cli/network.h"

namespace fq::cli {

/// --init and --map; with `partial`, --init-partial too.
void add_init_flags(FlagSet& set, bool partial);
/// Puts the tensors of `file`, renamed by --map, into a network, and says what became of them. Throws as
/// `load_weights`.
std::string take_weights(Network& network, const std::string& file, const Flags& flags);
/// Puts the tensors of --init into a network of --model, and says what became of them; an empty text without
/// the flag. Throws ArgumentError for --map without --init, and as `load_weights`.
std::string init_weights(Network& network, const Flags& flags);

/// The network that a command of a checkpoint starts from: that of the argument, or of --model with the
/// weights of --init, with samples and labels as the group of --data has them; nullopt where the checkpoint
/// depends on what an earlier phase finds. Throws ArgumentError unless one of both was given.
struct Start {
  std::optional<Network> network;
  std::string initialised;  ///< as `init_weights`
};
[[nodiscard]] Start starting_network(const Flags& flags, const std::string& group,
                                     const PlannedFiles& planned);

}  // namespace fq::cli
