#pragma once

/// Checks a data set against a network. `function` opens error messages.

#include <string>

#include "fakequant/network/network.h"
#include "fakequant/train/data/dataset.h"

namespace fq {

/// Throws ArgumentError if the samples or the classes of the data set do not fit the network.
void check_fits(const Network& network, const Dataset& data, const std::string& function);
/// Throws ArgumentError unless the network gives a number for each of several classes.
void check_classifies(const Network& network, const std::string& function);
/// Throws ArgumentError if the loss of the network's task does not take its outputs with the labels of the
/// data set. The message names a loss that does, if there is one.
void check_task(const Network& network, const Dataset& data, const std::string& function);

/// Copies the class names of the data set to a network without names, if there is one for each output. Logs a
/// warning for other names. Throws ArgumentError for the network's names in another order: labels then have
/// other meanings.
void take_class_names(Network& network, const Dataset& data, const std::string& function);
/// Copies how samples were made (take_sample_notes). Logs its warning.
void take_sample_notes(Network& network, const Dataset& data, const std::string& function);

}  // namespace fq
