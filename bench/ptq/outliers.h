#pragma once

/// Networks with outlier channels, for the table of algorithms and for tests.

#include <algorithm>
#include <numeric>
#include <vector>

#include "fakequant/train/ptq/detail/channel_scaling.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/ptq/detail/input_statistics.h"

namespace fq::ptq {

/// Multiplies one in eight channels between layers (the channels with the largest values on `data`, at least
/// one) by `factor`, and divides the weights that read them by `factor`. The float network is unchanged up to
/// rounding.
inline void add_outliers(Module& model, DataLoader& data, float factor) {
  const TraceGraph graph = float_graph(model, loader_input_shape(data));
  const auto statistics =
      input_statistics(model, data, weighted_layers(model, graph).layers, {.gram = false}, "add_outliers");
  for (const auto& group : folding_groups(model, graph).groups) {
    std::vector<std::vector<float>> read;
    for (const auto& reader : group.readers) read.push_back(statistics.at(reader.path).largest);
    const auto largest = largest_of_readers(group, read);
    std::vector<std::size_t> order(largest.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](auto a, auto b) { return largest[a] > largest[b]; });
    order.resize((order.size() + 7) / 8);
    std::vector<float> factors(largest.size(), 1.0f);
    for (const std::size_t c : order) factors[c] = 1 / factor;
    scale_channels(group, factors);
  }
}

}  // namespace fq::ptq
