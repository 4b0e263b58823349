#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"
#include "fakequant/train/ptq/detail/channel_scaling.h"
#include "fakequant/train/ptq/detail/float_run.h"

namespace fq::ptq {
namespace {

// Returns the largest magnitude of the weights that make each channel (r1 in the paper).
std::vector<float> ranges_made(const Producer& producer) {
  std::vector<float> out(static_cast<std::size_t>(producer.weight.dim(0)), 0.0f);
  const Tensor weight = producer.weight.tensor();
  const auto* w = weight.data<float>();
  const std::int64_t length = weight.numel() / weight.dim(0);
  for (float& range : out)
    for (std::int64_t i = 0; i < length; ++i) range = std::max(range, std::abs(*w++));
  return out;
}

// Returns the largest magnitude of the weights that read each channel (r2).
std::vector<float> ranges_read(const ScaleGroup& group) {
  std::vector<std::vector<float>> all;
  for (const auto& reader : group.readers) all.push_back(largest_by_channel(reader));
  return largest_of_readers(group, all);
}

double product_of_largest(const ScaleGroup& group) {
  return double(std::ranges::max(ranges_made(group.producer))) * double(std::ranges::max(ranges_read(group)));
}

/// Equalizes the channels of one group. Returns the largest |log(factor)|.
double equalize_once(const ScaleGroup& group) {
  const auto made = ranges_made(group.producer), read = ranges_read(group);
  std::vector<float> factors(made.size(), 1.0f);
  double moved = 0;
  for (std::size_t c = 0; c < made.size(); ++c) {
    if (made[c] == 0.0f || read[c] == 0.0f) continue;
    factors[c] = static_cast<float>(std::sqrt(double(made[c]) / double(read[c])));
    moved = std::max(moved, std::abs(std::log(double(factors[c]))));
  }
  scale_channels(group, factors);
  return moved;
}

}  // namespace

Report equalize(Module& model, const Shape& input_shape, const EqualizeOptions& options) {
  FQ_CHECK(options.iterations > 0 && options.tolerance >= 0, "equalize",
           "iterations is {} (use 1 or more), tolerance is {} (use 0 or more)", options.iterations,
           options.tolerance);
  check_uncalibrated(model, "equalize");
  ScaleGroups found = folding_groups(model, float_graph(model, input_shape));
  // The paper balances weights of two layers; a norm has no matrix to quantize.
  std::erase_if(found.groups, [](const ScaleGroup& group) { return group.producer.norm; });
  Report report{.layers = {}, .skipped = found.skipped};
  for (const auto& group : found.groups)
    for (const auto& reader : group.readers)
      report.layers.push_back({reader.path, product_of_largest(group), 0});
  double moved = options.tolerance + 1;
  // A layer between two others belongs to two groups, so that each change of a group disturbs its neighbours.
  for (int i = 0; i < options.iterations && moved > options.tolerance; ++i) {
    moved = 0;
    for (const auto& group : found.groups) moved = std::max(moved, equalize_once(group));
  }
  std::size_t i = 0;
  for (const auto& group : found.groups)
    for (std::size_t r = 0; r < group.readers.size(); ++r, ++i)
      report.layers[i].after = product_of_largest(group);
  return report;
}

AlgorithmEntry equalize_entry() {
  return {.options = {{"iterations", {}, OptionType::count}, {"tolerance"}},
          .before = [](Module& model, DataLoader& data, const AlgorithmOptions& given) {
            EqualizeOptions options;
            options.iterations = given.count("iterations", options.iterations);
            options.tolerance = given.number("tolerance", options.tolerance);
            return equalize(model, loader_input_shape(data), options);
          }};
}

}  // namespace fq::ptq
