#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/operators.h"
#include "fakequant/layers/modules/detail/evaluation_mode.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/ptq/detail/weighted_layers.h"

namespace fq::ptq {
namespace {

using Means = std::vector<double>;

/// Means of output channels by path.
class OutputRecorder : public Recorder {
 public:
  explicit OutputRecorder(const std::vector<WeightedLayer>& layers) {
    for (const auto& layer : layers) sums_[layer.path] = Means(static_cast<std::size_t>(layer.rows()), 0.0);
  }

  void on_op(std::string_view op, const std::vector<Variable>&, const Variable& output, Attributes) override {
    const auto found = sums_.find(module_path());
    if (busy_ || found == sums_.end() || !traits(op).has_weight) return;
    busy_ = true;  // reading sums as floats is an operator too
    add(output.tensor().to(Layout::row_major), op == "linear", found->second);
    counts_[found->first] += output.numel() / static_cast<std::int64_t>(found->second.size());
    busy_ = false;
  }

  [[nodiscard]] Means of(const std::string& path) const {
    Means out = sums_.at(path);
    const auto count = counts_.find(path);
    for (double& sum : out) sum /= count == counts_.end() ? 1.0 : double(count->second);
    return out;
  }

 private:
  static void add(const Tensor& y, bool rows, Means& sums) {
    const auto channels = static_cast<std::int64_t>(sums.size());
    const std::int64_t inner = rows ? 1 : y.numel() / y.dim(0) / channels,
                       outer = y.numel() / channels / inner;
    const auto* values = y.data<float>();
    for (std::int64_t o = 0; o < outer; ++o)
      for (double& sum : sums)
        for (std::int64_t i = 0; i < inner; ++i) sum += double(*values++);
  }

  std::map<std::string, Means> sums_;
  std::map<std::string, std::int64_t> counts_;
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

void check_finite(const std::string& path, const Means& means) {
  const bool finite = std::ranges::all_of(means, [](double v) { return std::isfinite(v); });
  if (!finite)
    throw NumericError(fmt::format("[correct_bias] the output of '{}' has a NaN or an infinity", path));
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
  WeightedLayers found = weighted_layers(model, float_graph(model, input_shape_of(data)));
  Report report{.layers = {}, .skipped = found.skipped};
  std::erase_if(found.layers, [&](const WeightedLayer& layer) {
    const std::string reason = reason_to_skip(layer);
    if (!reason.empty()) report.skipped.push_back({layer.path, reason});
    return !reason.empty();
  });
  OutputRecorder exact(found.layers);
  {
    const FloatScope in_float(model);
    run_batches(model, data, options.samples, &exact, "correct_bias");
  }
  for (const auto& layer : found.layers) check_finite(layer.path, exact.of(layer.path));
  const fq::detail::EvaluationMode evaluating(model);
  for (std::size_t i = 0; i <= found.layers.size(); ++i) {
    OutputRecorder quantized(found.layers);
    run_batches(model, data, options.samples, &quantized, "correct_bias");
    const auto shift_of = [&](const std::string& path) { return shift(quantized.of(path), exact.of(path)); };
    if (i > 0) report.layers.back().after = mean_square(shift_of(found.layers[i - 1].path));
    if (i == found.layers.size()) break;
    const auto& layer = found.layers[i];
    report.layers.push_back({layer.path, mean_square(shift_of(layer.path)), 0});
    subtract(layer.bias, shift_of(layer.path));
  }
  return report;
}

AlgorithmEntry bias_correction_entry() {
  return {.after = [](Module& model, DataLoader& data, const AlgorithmOptions& given) {
    return correct_bias(model, data, {.samples = given.samples()});
  }};
}

}  // namespace fq::ptq
