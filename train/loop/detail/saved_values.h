#pragma once

/// Parameters and averages of a model in checkpoints.

#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/variable.h"

namespace fq {
class Module;
class WeightAverage;
}  // namespace fq

namespace fq::detail {

/// Returns `named_parameters`, with a parameter that several layers share (a tied weight) under its first
/// name only. Ranges stay under every name of their quantizer, as the quantizers in checkpoints do.
[[nodiscard]] std::vector<std::pair<std::string, Variable>> saved_parameters(const Module& model);

/// Puts the averages into the groups `parameters`, `buffers` and `quantizers` of a checkpoint, where a reader
/// evaluates them. The values that training continues with go into the group `average`.
void put_average(const WeightAverage& average, StateDict& checkpoint);
/// Reverts `put_average` in `checkpoint` and returns the averages.
[[nodiscard]] StateDict take_average(StateDict& checkpoint);

}  // namespace fq::detail
