#pragma once

/// Networks that commands start from: a checkpoint, or --model with the weights of --init.

#include <cstdint>
#include <optional>
#include <string>

#include "fakequant/cli/flags/command_files.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/network/network.h"
#include "fakequant/train/data/dataset.h"

namespace fq::cli {

/// Reads a checkpoint, or the last one of a run directory. Throws as `Network::load`.
[[nodiscard]] Network load_network(const std::string& path);
/// Throws ArgumentError if weights are stored as codes. The message names the command that restores floats.
void check_not_compressed(const Network& network, const std::string& function, const std::string& checkpoint);
/// A network that the command line describes: a model, and weights from a file.
struct ModelOptions {
  std::optional<std::string> model = {};          ///< a file, or the name of a built-in model
  std::optional<std::string> model_options = {};  ///< JSON, of a built-in model
  std::optional<std::string> init = {};           ///< safetensors file of weights
  std::optional<std::string> map = {};            ///< JSON file of names
  bool init_partial = false;                      ///< weights without a tensor in the file start at random
};

/// Returns "a model file (models/*.json), or built in: cnn, .." with all names.
[[nodiscard]] std::string network_help();
/// Adds --model.
void add_model_flag(FlagSet& set, ModelOptions& options);
/// Adds --model-options, --init and --map; with `partial`, --init-partial too.
void add_init_flags(FlagSet& set, ModelOptions& options, bool partial);

/// Builds the model for the samples and labels of a data set. `seed` initialises the weights, and `task` sets
/// loss and metrics.
[[nodiscard]] Network make_network(const ModelOptions& options, const TaskText& task, const Dataset& data,
                                   const std::string& path, std::uint64_t seed, const std::string& command);

/// Copies the tensors of `file`, renamed by the file `map`, to a network. Returns a summary for people.
/// Throws as `load_weights`.
std::string take_weights(Network& network, const std::string& file, const std::optional<std::string>& map,
                         bool partial);
/// Copies the tensors of --init. Returns a summary for people; an empty text without the flag.
std::string init_weights(Network& network, const ModelOptions& options);

/// The network that a command starts from: a checkpoint, or a model with the weights of --init. `network` is
/// empty if the checkpoint depends on an earlier phase.
struct Start {
  std::optional<Network> network;
  std::string initialised;  ///< as `init_weights`
};
/// Throws ArgumentError unless exactly one of checkpoint and model is given, and for a model without --init.
[[nodiscard]] Start starting_network(const std::string& checkpoint, const ModelOptions& options,
                                     const TaskText& task, const std::string& data, const std::string& group,
                                     const PlannedFiles& planned, const std::string& command);

}  // namespace fq::cli
