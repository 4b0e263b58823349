#pragma once

/// Network: a model together with what it takes to build it again from a checkpoint.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/dataset.h"

namespace fq::cli {

struct Network {
  std::shared_ptr<Module> module;
  /// {"model": .., "options": .., "sample_shape": [..], "classes": n, "folded": false, "quantization": null},
  /// where outputs have axes behind the classes "dense": true, where they are known "class_names": [..], n of
  /// them, of data that tells how its samples were made "inputs" (train/loop/detail/sample_notes.h), and
  /// where it is not plain cross entropy of classes "task": {"loss": "huber,delta=2", "metrics":
  /// "mae,r2"} as the flags say it.
  nlohmann::json identity;

  /// Of a batch of one.
  [[nodiscard]] Shape input_shape() const;
  /// Numbers that the network gives for each sample; 0 where they are no list.
  [[nodiscard]] std::int64_t classes() const;
  [[nodiscard]] bool folded() const { return identity.at("folded").get<bool>(); }
  [[nodiscard]] bool quantized() const { return !identity.at("quantization").is_null(); }
};

/// Builds the model of --model and --model-options for samples and labels of that data set, with weights by
/// `seed` and the task of --loss and --metrics.
[[nodiscard]] Network make_network(const Flags& flags, const Dataset& data, std::uint64_t seed);
/// The same for samples of that shape and so many classes, with weights by seed 0; without classes (0), of as
/// many as the model gives numbers for each sample, 0 where they are no list.
[[nodiscard]] Network make_network(const ModelSpec& spec, const Shape& sample_shape, std::int64_t classes);
/// Of a model that was read from `file`, with its weights; of 0 classes where it gives other than a list of
/// numbers for each sample.
[[nodiscard]] Network make_network(const ImportedModel& model, const std::string& file);
/// Builds the model that a checkpoint names, and puts its values in. Throws FileError as `load_state`, and
/// for a checkpoint whose values do not fit its model.
[[nodiscard]] Network load_network(const std::string& checkpoint);
[[nodiscard]] Network load_network(const StateDict& state, const std::string& path);
/// What a checkpoint says its network is, an object. Throws FileError where it says nothing like it.
[[nodiscard]] nlohmann::json identity_of(const StateDict& state, const std::string& path);
/// A checkpoint without the state of training.
void save_network(const Network& network, const std::string& path);

/// Builds the network that an identity is of, with any values. Throws json::exception and ArgumentError for
/// what is none.
[[nodiscard]] Network rebuild(const nlohmann::json& identity);

/// Folds batch norm; returns how many.
std::size_t fold_network(Network& network);
/// Puts quantizers in by a config, which the network's identity keeps as the JSON that it was read from.
void quantize_network(Network& network, const nlohmann::json& json, const QuantConfig& config);

/// Gives quantizers without a range that need one any range: what a phase of a recipe finds later. For checks
/// alone: the network then computes nothing that means anything.
void stand_in_ranges(Network& network);

/// Throws ArgumentError for a network whose weights hold codes, naming the way back to floats.
void check_not_compressed(const Network& network, const std::string& function, const std::string& checkpoint);
/// Throws ArgumentError unless the network gives a number for each of several classes.
void check_classifies(const Network& network, const std::string& function);
/// Throws ArgumentError when the data set's samples or labels are not those of the network.
void check_fits(const Network& network, const Dataset& data, const std::string& function);

}  // namespace fq::cli
