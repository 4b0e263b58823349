#pragma once

/// The common frame of algorithms that choose the code of each weight.

#include <functional>
#include <string>

#include "fakequant/train/ptq/detail/input_statistics.h"
#include "fakequant/train/ptq/detail/weight_grid.h"

namespace fq::ptq {

/// Returns new weights of a calibrated layer, each fl(code * scale), [rows, columns].
using ChooseWeights = std::function<Tensor(const WeightedLayer& layer, const WeightGrid& grid,
                                           const InputStatistics& statistics)>;

/// Returns why an algorithm must skip a layer; empty if it can change the layer.
using ReasonAgainst = std::string (*)(const WeightedLayer& layer);

/// Returns the layers of a calibrated model for which `against` returns no reason. By default these are
/// layers with integer codes in fixed ranges. Adds all other layers to `report.skipped`. Throws
/// ArgumentError, with `function` as prefix, for a layer without a range.
[[nodiscard]] std::vector<WeightedLayer> codable_layers(Module& model, const DataLoader& data,
                                                        const std::string& function, Report& report,
                                                        ReasonAgainst against = reason_against_codes);

/// Makes one pass over the data in float, and calls `choose` for each layer of `codable_layers`. The ranks of
/// `options` divide the layers among them. A row takes its nearest codes if the chosen codes do not reduce
/// its output error. Reports the mean squared error of an output over `samples`, with nearest and chosen
/// codes. Throws the errors of `input_statistics`, and ArgumentError for a layer that is not calibrated.
Report choose_codes(Module& model, DataLoader& data, const StatisticsOptions& options,
                    const std::string& function, const ChooseWeights& choose,
                    ReasonAgainst against = reason_against_codes);

}  // namespace fq::ptq
