#pragma once

/// Networks that commands start from: a checkpoint, or --model with the weights of --init.

#include <optional>
#include <string>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/flags/planned_files.h"
#include "fakequant/network/network.h"

namespace fq::cli {

/// Reads a checkpoint, or the last one of a run directory. Throws as `Network::load`.
[[nodiscard]] Network load_network(const std::string& path);
/// Throws ArgumentError if weights hold codes. The message names the command that restores floats.
void check_not_compressed(const Network& network, const std::string& function, const std::string& checkpoint);
/// Builds the model of --model and --model-options for the samples and labels of a data set, with weights by
/// `seed` and the task of --loss and --metrics.
[[nodiscard]] Network make_network(const Flags& flags, const Dataset& data, std::uint64_t seed);

/// --init and --map; with `partial`, --init-partial too.
void add_init_flags(FlagSet& set, bool partial);
/// Copies the tensors of `file`, renamed by the file `map`, to a network. Returns a text on the tensors.
/// Throws as `load_weights`.
std::string take_weights(Network& network, const std::string& file, const std::optional<std::string>& map,
                         bool partial);
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
