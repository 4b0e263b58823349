#include <algorithm>
#include <array>
#include <map>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/ptq/detail/weighted_layers.h"
#include "fakequant/train/ranks/detail/binned_sum.h"

namespace fq::ptq {
namespace {

using Means = std::vector<double>;

/// Sums of one layer's output channels.
struct ChannelSums {
  explicit ChannelSums(std::int64_t channels) : sums(channels) {}

  BinnedSum sums;
  std::int64_t count = 0;  ///< values per channel
};

/// Records the means of output channels by layer path.
class OutputRecorder : public Recorder {
 public:
  explicit OutputRecorder(const std::vector<WeightedLayer>& layers) {
    for (const auto& layer : layers) layers_.try_emplace(layer.path, layer.rows());
  }

  void record_op(std::string_view op, const std::vector<Variable>&, const Variable& output,
                 Attributes) override {
    const auto found = layers_.find(module_path());
    if (busy_ || found == layers_.end() || !traits(op).has_weight) return;
    busy_ = true;  // reading the output as floats runs an operator, too
    add(output.tensor().to(Layout::row_major), op == "linear", found->first, found->second);
    busy_ = false;
  }

  /// Adds the sums of all ranks. All ranks must call it.
  void merge(Communicator& ranks) {
    for (auto& [path, layer] : layers_) {
      // Counts and sums of all ranks: the mean is over all data.
      std::array<std::int64_t, 1> count{layer.count};
      ranks.sum(count);
      layer.count = count[0];
      layer.sums.merge(ranks);
    }
  }

  [[nodiscard]] Means of(const std::string& path) const {
    const ChannelSums& layer = layers_.at(path);
    Means out = layer.sums.values();
    for (double& sum : out) sum /= double(std::max<std::int64_t>(1, layer.count));
    return out;
  }

 private:
  static void add(const Tensor& y, bool rows, const std::string& path, ChannelSums& layer) {
    const std::int64_t channels = layer.sums.size();
    // y: [outer, channels, inner], row-major. A linear layer has its channels on the last axis.
    const std::int64_t inner = rows ? 1 : y.numel() / y.dim(0) / channels,
                       outer = y.numel() / channels / inner;
    Means sums(static_cast<std::size_t>(channels), 0.0);
    const auto* values = y.data<float>();
    for (std::int64_t o = 0; o < outer; ++o)
      for (double& sum : sums)
        for (std::int64_t i = 0; i < inner; ++i) sum += double(*values++);
    layer.count += outer * inner;
    if (!layer.sums.add(sums))
      throw NumericError(fmt::format("[correct_bias] the output of '{}' has a NaN or an infinity", path));
  }

  std::map<std::string, ChannelSums> layers_;
  bool busy_ = false;
};

std::string reason_to_skip(const WeightedLayer& layer) {
  if (!layer.bias.defined()) return "has no bias";
  const bool quantized = layer.quant != nullptr && (layer.quant->weight_quantizer()->enabled() ||
                                                    layer.quant->input_quantizers()[0]->enabled());
  return quantized ? "" : "is not quantized";
}

Means shift(Means quantized, const Means& exact) {
  for (std::size_t c = 0; c < exact.size(); ++c) quantized[c] -= exact[c];
  return quantized;
}

double mean_square(const Means& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return sum / double(values.size());
}

void subtract(Variable bias, const Means& shift) {
  auto* b = bias.mutable_tensor().mutable_data<float>();
  for (std::size_t c = 0; c < shift.size(); ++c) b[c] = static_cast<float>(double(b[c]) - shift[c]);
}

}  // namespace

Report correct_bias(Module& model, DataLoader& data, const BiasCorrectionOptions& options) {
  const auto missing = uncalibrated_quantizers(model);
  FQ_CHECK(missing.empty(), "correct_bias", "{} have no range yet: calibrate before this",
           fmt::join(missing, ", "));
  WeightedLayers found = weighted_layers(model, float_graph(model, loader_input_shape(data)));
  Report report{.layers = {}, .skipped = found.skipped};
  std::erase_if(found.layers, [&](const WeightedLayer& layer) {
    const std::string reason = reason_to_skip(layer);
    if (!reason.empty()) report.skipped.push_back({layer.path, reason});
    return !reason.empty();
  });
  const auto ranks = ranks_or_one(options.ranks);
  // The float means are collected once: corrections change only the quantized model.
  OutputRecorder exact(found.layers);
  {
    const FloatScope float_scope(model);
    run_batches(model, data, options.samples, *ranks, &exact, "correct_bias");
  }
  exact.merge(*ranks);
  const fq::detail::EvaluationMode evaluating(model);
  // A corrected bias changes the inputs of all later layers, so that each layer needs a pass of its own.
  for (std::size_t i = 0; i <= found.layers.size(); ++i) {
    // Pass i measures layer i after all earlier corrections, and the result of layer i - 1.
    OutputRecorder quantized(found.layers);
    run_batches(model, data, options.samples, *ranks, &quantized, "correct_bias");
    quantized.merge(*ranks);
    const auto output_shift = [&](const std::string& path) {
      return shift(quantized.of(path), exact.of(path));
    };
    if (i > 0) report.layers.back().after = mean_square(output_shift(found.layers[i - 1].path));
    if (i == found.layers.size()) break;
    const auto& layer = found.layers[i];
    report.layers.push_back({layer.path, mean_square(output_shift(layer.path)), 0});
    subtract(layer.bias, output_shift(layer.path));
  }
  return report;
}

AlgorithmEntry bias_correction_entry() {
  return {.after = [](Module& model, DataLoader& data, const AlgorithmOptions& given) {
    return correct_bias(model, data, {.samples = given.samples(), .ranks = given.ranks()});
  }};
}

}  // namespace fq::ptq
