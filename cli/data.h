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

/// --loss and --metrics. Without them, the task of the checkpoint.
void add_task_flags(FlagSet& set, TaskText& options);
/// Copies the options that are given to the network. Throws ArgumentError for an unknown loss or metric.
void take_task(Network& network, const TaskText& options, const std::string& command);

/// One group of a data set.
struct DataOptions {
  std::string data = {};       ///< HDF5 file
  std::string split = "test";  ///< group
  std::int64_t batch = 64;     ///< samples
};
/// Adds the group "Data". `required`: whether --data has to be given.
void add_data_flags(FlagSet& set, DataOptions& options, bool required = true);

enum class Labels { needed, if_there, none };

/// Opens one group of a data set for a network and its task. Samples and labels must fit, which is checked in
/// that order. Class names and sample notes of the data go to the network (`take_class_names`,
/// `take_sample_notes`).
[[nodiscard]] std::shared_ptr<const Dataset> open_data_for(Network& network, const std::string& path,
                                                           const std::string& group, Labels labels,
                                                           const std::string& command);
/// Opens one group of a data set for a network that is not known yet.
[[nodiscard]] std::shared_ptr<const Dataset> open_any_data(const std::string& path, const std::string& group,
                                                           bool labels, LabelType label_type);

/// A network that a command runs on data. `network` is empty if an earlier phase writes the checkpoint and
/// what it will hold is not known yet.
struct RunningNetwork {
  std::optional<Network> network;
  std::shared_ptr<const Dataset> data;
};

/// Opens the network and its data, and checks that they fit and, unless the checkpoint is planned, that the
/// network is calibrated. `task`: replaces the network's own, unless null.
[[nodiscard]] RunningNetwork check_running(const std::string& checkpoint, const DataOptions& data,
                                           const TaskText* task, Labels labels, const PlannedFiles& planned,
                                           const std::string& command);

/// "images" of [C, H, W], "windows" of a text, and "samples" of everything else.
[[nodiscard]] std::string sample_noun(const Dataset& data);

}  // namespace fq::cli
