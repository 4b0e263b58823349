#pragma once

/// Algorithms that choose the code of every weight of a layer.

#include <functional>
#include <string>

#include "fakequant/train/ptq/detail/input_statistics.h"
#include "fakequant/train/ptq/detail/weight_grid.h"

namespace fq::ptq {

/// Gives the weights of a calibrated layer new values, each fl(code * scale), [rows, columns].
using ChooseWeights = std::function<Tensor(const WeightedLayer& layer, const WeightGrid& grid,
                                           const InputStatistics& statistics)>;

/// Why an algorithm leaves a layer alone; empty where it does not.
using ReasonAgainst = std::string (*)(const WeightedLayer& layer);

/// The layers of a calibrated model that nothing is `against`: by default those whose weights have codes of
/// integers in fixed ranges; the others go to the report. Throws ArgumentError in the name of `function` for
/// one without a range.
[[nodiscard]] std::vector<WeightedLayer> codable_layers(Module& model, const DataLoader& data,
                                                        const std::string& function, Report& report,
                                                        ReasonAgainst against = reason_against_codes);

/// Runs one pass over the data in float, and `choose` for each of those layers, which the ranks of `options`
/// deal out among them; rows that would be further
/// from the float output than those of the nearest codes get these. Reported: the mean squared error of an
/// output over `samples`, of nearest and of chosen codes. Throws as `input_statistics`, and ArgumentError for
/// a layer that is not calibrated.
Report choose_codes(Module& model, DataLoader& data, const StatisticsOptions& options,
                    const std::string& function, const ChooseWeights& choose,
                    ReasonAgainst against = reason_against_codes);

}  // namespace fq::ptq
