#pragma once

/// What the classes of a network are called: of the data set it was trained on, kept in its checkpoint.

#include <string>
#include <vector>

#include "fakequant/cli/network.h"

namespace fq::cli {

/// In the order of the outputs; none where no data set told.
[[nodiscard]] std::vector<std::string> class_names(const Network& network);
/// How many names there can be: classes of a sample, or of each of its places; 0 where it is not known.
[[nodiscard]] std::int64_t named_outputs(const Network& network);
/// "cat", or "3" without names.
[[nodiscard]] std::string class_label(const std::vector<std::string>& names, std::int64_t index);
/// "cat, dog, .."; at most 12 of them.
[[nodiscard]] std::string names_text(const std::vector<std::string>& names);
/// "10 classes: cat, dog, .."; without names "10 classes".
[[nodiscard]] std::string classes_text(std::int64_t count, const std::vector<std::string>& names);

/// A network without names takes those of the data, if they are as many as it has outputs; otherwise a
/// warning says what differs. Throws ArgumentError for the names of the network in another order: then labels
/// mean other classes there.
void take_class_names(Network& network, const Dataset& data, const std::string& function);

}  // namespace fq::cli
