#include "fakequant/train/calibration/calibration_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/detail/calibration_targets.h"
#include "fakequant/train/calibration/detail/collected_histogram.h"
#include "fakequant/train/calibration/detail/observer_scope.h"
#include "fakequant/train/calibration/detail/range_cost.h"

namespace fq::detail {
namespace {

constexpr int kWeightBins = 2048;

std::string granularity_text(const QuantDescriptor& d) {
  std::string text = d.dynamic() || d.has_dynamic_blocks() ? "from each input, " : "";
  if (!d.axis().empty()) return text + fmt::format("axis {}", fmt::join(d.axis().values(), ", "));
  if (d.block_sizes().empty()) return text + "per tensor";
  return text + fmt::format("blocks of {}", d.block_sizes().lengths);
}

// The part of a report that needs no data.
QuantizerReport described(const NamedQuantizer& entry, bool is_weight, const std::string& method) {
  const auto& d = entry.quantizer->descriptor();
  QuantizerReport out{.name = entry.name, .aliases = entry.aliases, .is_weight = is_weight};
  out.format = to_string(d.format());
  out.granularity = granularity_text(d);
  out.is_chosen = entry.quantizer->amax().defined();
  out.in_force.method = d.learn_amax() && out.is_chosen ? "learned" : method;
  for (const auto& name : report_methods()) out.methods.push_back({.method = name});
  return out;
}

void set_reason(QuantizerReport& out, const std::string& reason) {
  for (auto& range : out.methods) range.reason = reason;
  out.in_force.reason = reason;
}

/// Returns the message of an error without the function name.
std::string short_message(const ArgumentError& error) {
  const std::string text = error.what();
  const auto end = text.find("] ");
  return text.starts_with('[') && end != std::string::npos ? text.substr(end + 2) : text;
}

// One method that cannot be used must not prevent the report: its message becomes the reason.
template <class Measure>
void try_range(RangeReport& range, const Measure& measure) {
  try {
    measure();
  } catch (const ArgumentError& error) {
    range.reason = short_message(error);
  }
}

void report_activation(TensorQuantizer& q, const AmaxOptions& given, const std::string& method,
                       QuantizerReport& out) {
  if (out.is_chosen) set_amax(out.in_force, q.amax());
  if (!q.observer().minimum()) return set_reason(out, "no statistics were collected");
  const CollectedHistogram collected(q.observer().calibrator());
  out.histogram = collected.histogram();
  out.count = collected.count();
  out.minimum = *q.observer().minimum();
  out.largest = collected.largest();
  AmaxOptions options = given;
  options.num_bits = q.descriptor().num_bits();
  options.limits_clipping = q.params().arithmetic == Arithmetic::deployed;
  // Before calibration chooses the sign, the report shows the sign that it would choose.
  options.is_unsigned = out.is_chosen ? q.descriptor().is_unsigned() : q.observer().range(given).is_unsigned;
  auto fields = q.descriptor().options();
  fields.is_unsigned = options.is_unsigned;
  out.format = to_string(QuantDescriptor(fields).format());
  // One histogram serves all methods: the cost of a range is measured on its bins.
  const RangeCost cost(q, fields, collected);
  for (auto& range : out.methods)
    try_range(range, [&] { cost.measure(collected.amax(range.method, options), range); });
  try_range(out.in_force,
            [&] { cost.measure(out.is_chosen ? q.amax() : collected.amax(method, options), out.in_force); });
}

void measure_weight(TensorQuantizer& q, const Tensor& weight, RangeReport& range) {
  if (const Tensor amax = q.amax(); amax.defined()) set_amax(range, amax);
  const RangeCost cost(q, q.descriptor().options(), weight);
  cost.measure(q.amax(), range);
}

void report_weight(TensorQuantizer& q, const Tensor& weight, const AmaxOptions& options,
                   const std::string& method, QuantizerReport& out) {
  const Tensor values = weight.to(DType::f32);
  const detail::ValueRange range = detail::range(values);
  detail::check_finite(range.largest, "calibration_report");
  out.histogram.collect(values, range.largest, kWeightBins, false);
  out.count = values.numel();
  out.minimum = range.minimum;
  out.largest = range.largest;
  // Weights are collected again with each method, because the data is complete: results are exact.
  const auto measure = [&](const std::string& name, RangeReport& result) {
    const auto chosen = with_method(q, name);
    collect_whole(*chosen, values);
    chosen->set_calibrated_range(chosen->observer().range(options));
    measure_weight(*chosen, values, result);
  };
  // Weights without a range of their own compute it from their values, with any method.
  const bool own = q.descriptor().needs_amax();
  for (auto& result : out.methods) {
    if (!own)
      result.reason = "ranges come from each input";
    else
      try_range(result, [&] { measure(result.method, result); });
  }
  try_range(out.in_force, [&] {
    if (own && !out.is_chosen)
      measure(method, out.in_force);
    else
      measure_weight(q, values, out.in_force);
  });
}

}  // namespace

QuantizerReport quantizer_report(const NamedQuantizer& entry, const Variable& weight,
                                 const std::string& method, const AmaxOptions& options) {
  QuantizerReport out = described(entry, weight.defined(), method);
  if (weight.defined())
    report_weight(*entry.quantizer, weight.tensor(), options, method, out);
  else
    report_activation(*entry.quantizer, options, method, out);
  return out;
}

}  // namespace fq::detail

namespace fq {
namespace {

using nlohmann::json;
using Methods = std::map<const TensorQuantizer*, std::string>;

constexpr const char* kReport = "calibration_report";

std::vector<NamedQuantizer> enabled_quantizers(Module& model) {
  auto out = named_quantizers(model);
  std::erase_if(out, [](const auto& entry) { return !entry.quantizer->params().enabled; });
  FQ_CHECK(!out.empty(), kReport, "the model has no quantizer that is enabled: quantize it first");
  return out;
}

// The methods before a collection, which replaces them by one_pass.
Methods quantizer_methods(const std::vector<NamedQuantizer>& entries) {
  Methods out;
  for (const auto& entry : entries) out[entry.quantizer] = entry.quantizer->descriptor().calib_method();
  return out;
}

void check_options(const AmaxOptions& options) {
  FQ_CHECK(options.percentile >= 0 && options.percentile <= 100, kReport, "a percentile of {}: use 0 to 100",
           options.percentile);
}

std::vector<QuantizerReport> reports(Module& model, const std::vector<NamedQuantizer>& entries,
                                     const Methods& methods, const AmaxOptions& options) {
  const auto weights = detail::quantizer_weights(model);
  std::vector<QuantizerReport> out;
  for (const auto& entry : entries) {
    const auto weight = weights.find(entry.quantizer);
    out.push_back(detail::quantizer_report(entry, weight == weights.end() ? Variable() : weight->second,
                                           methods.at(entry.quantizer), options));
  }
  return out;
}

/// Returns names of quantizers in the order of the file.
std::vector<std::string> quantizer_names(const StateDict& quantizers) {
  std::vector<std::string> out;
  const auto add = [&out](const std::string& key) {
    const std::string name = key.substr(0, key.find('/'));
    if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  };
  for (const auto& [key, value] : quantizers.tensors()) add(key);
  for (const auto& [key, value] : quantizers.attributes().items()) add(key);
  return out;
}

/// Returns a quantizer with the saved settings and the saved state of its calibrator.
std::unique_ptr<TensorQuantizer> saved_quantizer(const StateDict& state, const std::string& name) {
  json fields = state.attribute(name + "/settings"), options = state.attribute(name + "/calibrator_options");
  FQ_CHECK(fields.is_object() && options.is_object(), kReport, "settings are no objects");
  // The state has a checksum of it, which is no field of a descriptor.
  fields.erase("pre_quant_scale");
  // Fields of the calibrator, not of a descriptor; the axis comes from the settings.
  for (const char* of_calibrator : {"axis", "stop_multiplier", "multiplier_step"})
    options.erase(of_calibrator);
  fields.update(options);
  auto out = std::make_unique<TensorQuantizer>(QuantDescriptor::from_dict(fields));
  out->set_name(name);
  out->observer().load(state, name);
  return out;
}

void measure(TensorQuantizer& q, const Tensor& x, QuantizationError& sum) {
  const Tensor values = x.to(DType::f32);
  // Both tensors need one layout: error_sums reads them as arrays.
  const auto sums = detail::error_sums(values, q.quantized_values(values).to(DType::f32).to(values.layout()));
  sum.mse += sums.error;
  sum.signal += sums.signal;
  // Sums over batches; the means follow at the end.
  sum.elements += x.numel();
}

}  // namespace

const std::vector<std::string>& report_methods() {
  static const auto methods = [] {
    std::vector<std::string> out{"max"};
    for (const auto& reading : detail::histogram_readings()) out.emplace_back(reading.name);
    return out;
  }();
  return methods;
}

std::vector<QuantizerReport> calibration_report(Module& model, const AmaxOptions& options) {
  check_options(options);
  check_not_compressed(model, kReport);
  const auto entries = enabled_quantizers(model);
  return reports(model, entries, quantizer_methods(entries), options);
}

std::vector<QuantizerReport> calibration_report(Module& model, DataLoader& data, std::int64_t samples,
                                                const AmaxOptions& options,
                                                std::shared_ptr<Communicator> ranks) {
  check_options(options);
  check_not_compressed(model, kReport);
  const auto entries = enabled_quantizers(model);
  const Methods methods = quantizer_methods(entries);
  std::vector<TensorQuantizer*> activations;
  for (const auto& target : detail::calibration_targets(model, false))
    if (!target.is_weight()) activations.push_back(target.entry.quantizer);
  // Not kept: a report does not change the calibration of the model.
  const detail::CalibrationUndo undo(activations);
  // One pass collects a histogram. The ranges of the other methods are computed from this histogram.
  (void)collect_ranges(model, data, {.method = "one_pass", .samples = samples, .ranks = std::move(ranks)});
  return reports(model, entries, methods, options);
}

std::vector<QuantizerReport> calibration_report(const StateDict& state, const std::string& path,
                                                const AmaxOptions& options) {
  check_options(options);
  const StateDict quantizers = state.sub("quantizers");
  std::vector<QuantizerReport> out;
  for (const auto& name : quantizer_names(quantizers)) {
    try {
      const auto quantizer = saved_quantizer(quantizers, name);
      out.push_back(detail::quantizer_report({name, quantizer.get(), {}}, Variable(),
                                             quantizer->descriptor().calib_method(), options));
    } catch (const ArgumentError& error) {
      throw FileError(path, "quantizers/" + name,
                      fmt::format("[{}] {}: {} cannot be read: {}", kReport, path, name, error.what()));
    }
  }
  if (out.empty())
    throw FileError(path, "quantizers", fmt::format("[{}] {} has no collected statistics", kReport, path));
  return out;
}

double QuantizationError::sqnr_db() const {
  // A tensor of zeros has no signal to compare with.
  if (signal == 0) return 0;
  return mse == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / mse);
}

std::vector<QuantizationError> compute_quantization_mse(Module& model, DataLoader& data, std::int64_t samples,
                                                        std::string_view pattern) {
  FQ_CHECK(samples >= 0, "compute_quantization_mse", "{} samples: use 1 or more, or 0 for all", samples);
  check_not_compressed(model, "compute_quantization_mse");
  const auto weights = detail::quantizer_weights(model);
  std::vector<NamedQuantizer> entries;
  visit_quantizers(model, pattern, "compute_quantization_mse", [&](const NamedQuantizer& entry) {
    auto& q = *entry.quantizer;
    if (!q.params().enabled) return;
    FQ_CHECK(q.amax().defined() || !q.descriptor().needs_amax(), "compute_quantization_mse",
             "'{}' has no range: calibrate it first", entry.name);
    entries.push_back(entry);
  });
  std::vector<QuantizationError> out(entries.size());
  detail::ObserverScope watching(model);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto& q = *entries[i].quantizer;
    out[i].name = entries[i].name;
    if (const auto weight = weights.find(&q); weight != weights.end())
      measure(q, weight->second.tensor(), out[i]);
    else
      watching.observe(q, [&q, &sum = out[i]](const Tensor& x) { measure(q, x, sum); });
  }
  FQ_CHECK(watching.run(data, samples) > 0, "compute_quantization_mse",
           "there is no data: use at least one image");
  for (auto& error : out) {
    const double count = static_cast<double>(std::max<std::int64_t>(error.elements, 1));
    error.mse /= count;
    error.signal /= count;
  }
  return out;
}

}  // namespace fq
