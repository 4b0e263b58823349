#pragma once

/// Tasks and data sets that flags name.

#include <memory>
#include <string>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/network/network.h"
#include "fakequant/train/data/dataset.h"
#include "fakequant/train/data/some_samples.h"

namespace fq::cli {

/// --loss and --metrics.
void add_task_flags(FlagSet& set);
/// Reads --loss and --metrics; plain cross entropy for commands without these flags.
[[nodiscard]] Task read_task(const Flags& flags);
/// Copies the flags that are given to the network.
void take_task(Network& network, const Flags& flags);

/// One group of the file that --data names, and no other, with labels for --loss; of commands without it, of
/// any kind. `classes` bounds labels of classes; 0: as the file says.
[[nodiscard]] std::shared_ptr<const Dataset> open_data(const Flags& flags, const std::string& group,
                                                       std::int64_t classes = 0, bool labels = true);
enum class Labels { needed, if_there, none };

/// As `open_data`, for a network and its task: its samples and labels must fit, which is checked in that
/// order, and what its classes are called and how its samples were made becomes known to the network
/// (`take_class_names`, `take_sample_notes`).
[[nodiscard]] std::shared_ptr<const Dataset> open_data_for(Network& network, const Flags& flags,
                                                           const std::string& group,
                                                           Labels labels = Labels::needed);

}  // namespace fq::cli
