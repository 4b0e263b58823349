#include "fakequant/train/calibration/detail/quantizer_report.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/calibration/detail/calibration_targets.h"
#include "fakequant/train/calibration/detail/collected_histogram.h"
#include "fakequant/train/calibration/detail/range_cost.h"

namespace fq::detail {
namespace {

constexpr int kWeightBins = 2048;

std::string granularity_of(const QuantDescriptor& d) {
  std::string text = d.dynamic() || d.has_dynamic_blocks() ? "from each input, " : "";
  if (!d.axis().empty()) return text + fmt::format("axis {}", fmt::join(d.axis().values(), ", "));
  if (d.block_sizes().empty()) return text + "per tensor";
  return text + fmt::format("blocks of {}", d.block_sizes().lengths);
}

QuantizerReport described(const NamedQuantizer& entry, bool is_weight, const std::string& method) {
  const auto& d = entry.quantizer->descriptor();
  QuantizerReport out{.name = entry.name, .aliases = entry.aliases, .is_weight = is_weight};
  out.format = to_string(d.format());
  out.granularity = granularity_of(d);
  out.is_chosen = entry.quantizer->amax().defined();
  out.in_force.method = d.learn_amax() && out.is_chosen ? "learned" : method;
  for (const auto& name : report_methods()) out.methods.push_back({.method = name});
  return out;
}

void set_reason(QuantizerReport& out, const std::string& reason) {
  for (auto& range : out.methods) range.reason = reason;
  out.in_force.reason = reason;
}

/// What is wrong, without the function that says so.
std::string text_of(const ArgumentError& error) {
  const std::string text = error.what();
  const auto end = text.find("] ");
  return text.starts_with('[') && end != std::string::npos ? text.substr(end + 2) : text;
}

template <class Measure>
void try_range(RangeReport& range, const Measure& measure) {
  try {
    measure();
  } catch (const ArgumentError& error) {
    range.reason = text_of(error);
  }
}

void report_activation(TensorQuantizer& q, const AmaxOptions& given, const std::string& method,
                       QuantizerReport& out) {
  if (out.is_chosen) set_amax(out.in_force, q.amax());
  if (!q.observer().minimum()) return set_reason(out, "nothing was collected");
  const CollectedHistogram collected(q.observer().calibrator());
  out.histogram = collected.histogram();
  out.count = collected.count();
  out.minimum = *q.observer().minimum();
  out.largest = collected.largest();
  AmaxOptions options = given;
  options.num_bits = q.descriptor().num_bits();
  options.limits_clipping = q.params().arithmetic == Arithmetic::deployed;
  options.is_unsigned = out.is_chosen ? q.descriptor().is_unsigned() : q.observer().range(given).is_unsigned;
  auto fields = q.descriptor().options();
  fields.is_unsigned = options.is_unsigned;
  out.format = to_string(QuantDescriptor(fields).format());
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
  const auto measure = [&](const std::string& name, RangeReport& result) {
    const auto chosen = with_method(q, name);
    collect_whole(*chosen, values);
    chosen->set_calibrated_range(chosen->observer().range(options));
    measure_weight(*chosen, values, result);
  };
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
