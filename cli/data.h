#pragma once

/// Tasks, data sets, and networks with the data that they run on, by the flags of a command.

#include <memory>
#include <string>

#include "fakequant/cli/flags/command_files.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/network/network.h"
#include "fakequant/train/data/dataset.h"
#include "fakequant/train/data/subset.h"

namespace fq::cli {

/// Adds --loss and --metrics. Their default is the task of the checkpoint.
void add_task_flags(FlagSet& set, TaskText& options);
/// Copies the given options to the network. Throws ArgumentError for an unknown loss or metric.
void take_task(Network& network, const TaskText& options, const std::string& command);

/// One group of a data set.
struct DataOptions {
  std::string data = {};       ///< HDF5 file
  std::string split = "test";  ///< group
  std::int64_t batch = 64;     ///< samples
};
/// Adds the group "Data". `required`: whether --data is required.
void add_data_flags(FlagSet& set, DataOptions& options, bool required = true);

enum class Labels { needed, if_there, none };

/// Opens one group of a data set for a network and its task. Checks samples first, then labels. Copies class
/// names and sample notes of the data to the network (`take_class_names`, `take_sample_notes`).
[[nodiscard]] std::shared_ptr<const Dataset> open_network_data(Network& network, const std::string& path,
                                                               const std::string& group, Labels labels,
                                                               const std::string& command);
/// Opens one group of a data set for a network that is not known yet.
[[nodiscard]] std::shared_ptr<const Dataset> open_any_data(const std::string& path, const std::string& group,
                                                           bool labels, LabelType label_type);

/// A network that a command runs on data. `network` is empty if an earlier phase writes the checkpoint and
/// its content is not known yet.
struct RunningNetwork {
  std::optional<Network> network;
  std::shared_ptr<const Dataset> data;
};

/// Opens the network and its data, and checks that they match. Checks that the network is calibrated, unless
/// the checkpoint is planned. A `task` that is not null replaces the task of the network.
[[nodiscard]] RunningNetwork check_running(const std::string& checkpoint, const DataOptions& data,
                                           const TaskText* task, Labels labels, const PlannedFiles& planned,
                                           const std::string& command);

/// Returns "images" for [C, H, W], "windows" for a text, and "samples" for all other data.
[[nodiscard]] std::string sample_noun(const Dataset& data);

}  // namespace fq::cli
