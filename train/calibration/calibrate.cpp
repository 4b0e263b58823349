#include "fakequant/train/calibration/calibrate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/ranges.h>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/log.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/dead_channels.h"
#include "fakequant/layers/quantizer/detail/ggml_scheme.h"
#include "fakequant/layers/quantizer/detail/lattice.h"
#include "fakequant/train/calibration/detail/calibration_targets.h"
#include "fakequant/train/calibration/detail/observer_scope.h"
#include "fakequant/train/ranks/shares.h"

namespace fq {
namespace {

using detail::CalibrationTarget;
using detail::CalibrationUndo;
using Targets = std::vector<CalibrationTarget>;

/// Returns [begin, begin + count) of each row.
Tensor columns(const Tensor& rows, std::int64_t begin, std::int64_t count) {
  const Tensor source = rows.to(Device::cpu()).to(DType::f32);
  Tensor out = Tensor::empty({rows.dim(0), count});
  for (std::int64_t row = 0; row < rows.dim(0); ++row)
    std::copy_n(source.data<float>() + row * rows.dim(1) + begin, count,
                out.mutable_data<float>() + row * count);
  return out;
}

void check_model(Module& model) {
  check_one_target(model);
  check_not_compressed(model, "calibrate");
  FQ_CHECK(!named_quantizers(model).empty(), "calibrate",
           "the model has no quantizer to calibrate: quantize it first");
}

std::vector<TensorQuantizer*> target_quantizers(const Targets& targets) {
  std::vector<TensorQuantizer*> out;
  for (const auto& target : targets) out.push_back(target.entry.quantizer);
  return out;
}

/// Throws if the calibrator cannot add data: several passes require a grid that earlier data has fixed.
void check_adds(const TensorQuantizer& q, const Calibrator& calibrator) {
  FQ_CHECK(calibrator.empty() || calibrator.passes() == 1, "calibrate",
           "'{}' has a state of '{}', which requires {} passes over all data: discard the state, or use "
           "another method",
           q.name(), calibrator.method(), calibrator.passes());
}

int begin(const std::vector<TensorQuantizer*>& quantizers, bool keep_collected) {
  // The slowest calibrator decides: a histogram of two passes needs the range before it can count.
  int passes = 0;
  for (auto* q : quantizers) {
    if (!keep_collected) q->observer().calibrator().reset();
    check_adds(*q, q->observer().calibrator());
    passes = std::max(passes, q->observer().calibrator().passes());
  }
  return passes;
}

std::int64_t run_pass(Module& model, DataLoader& data, const std::vector<TensorQuantizer*>& quantizers,
                      int pass, const CalibrateOptions& options, std::int64_t& masked) {
  detail::ObserverScope watching(model);
  for (auto* q : quantizers) {
    // Calibrators with fewer passes, and quantizers that no forward pass reached, do not observe in this
    // pass.
    const int passes = q->observer().calibrator().empty() ? 1 : q->observer().calibrator().passes();
    if (pass > 0 && passes <= pass) continue;
    if (pass > 0) q->observer().calibrator().next_pass();
    watching.observe(*q, [q](const Tensor& x) { q->observer().collect(x); });
  }
  const std::int64_t samples = watching.run(data, options.samples, options.mask);
  masked = watching.masked();
  return samples;
}

/// Sets `samples` and `masked` of the report. `passes` is already set.
void run_passes(Module& model, DataLoader& data, const std::vector<TensorQuantizer*>& quantizers,
                const CalibrateOptions& options, Communicator& ranks, CalibrationReport& report) {
  for (int pass = 0; pass < report.passes; ++pass) {
    report.samples = run_pass(model, data, quantizers, pass, options, report.masked);
    detail::merge_over_ranks(model, ranks);
  }
}

/// Runs each rank on its share of the data, or on all data if the method cannot merge shares exactly.
void run_on_ranks(Module& model, DataLoader& data, const std::vector<TensorQuantizer*>& quantizers,
                  const CalibrateOptions& options, CalibrationReport& report) {
  auto& ranks = *options.ranks;
  detail::check_share(data.options(), ranks, ranks.size(), "calibrate");
  // Empty if all methods merge shares without a change of the result.
  const auto method = detail::method_of_one_process(quantizers);
  if (method.empty()) {
    if (ranks.rank() > 0)  // so that the state from before counts once
      for (auto* q : quantizers) q->observer().calibrator().reset();
    return run_passes(model, data, quantizers, options, ranks, report);
  }
  if (ranks.size() > 1)
    log(LogLevel::info,
        fmt::format("[calibrate] '{}' depends on the order of batches: every rank sees all of them; max, "
                    "one_pass and two_pass share them",
                    method));
  // Each rank collects everything by itself, so that no merge is needed.
  DataLoader whole = detail::same_data_loader(data, all_batches(data.options()));
  run_passes(model, whole, quantizers, options, *one_rank(), report);
}

void collect_weights(const Targets& weights) {
  for (const auto& target : weights) {
    target.entry.quantizer->observer().calibrator().reset();
    detail::collect_whole(*target.entry.quantizer, target.weight.tensor());
  }
}

std::pair<Targets, Targets> activations_and_weights(Module& model, bool keep_known) {
  std::pair<Targets, Targets> out;
  for (auto& target : detail::calibration_targets(model, keep_known))
    (target.is_weight() ? out.second : out.first).push_back(std::move(target));
  return out;
}

// Up to least_amax a range has only code 0, as a range of 0.
bool is_zero(const Tensor& weight) {
  return weight.numel() > 0 && detail::range(weight.to(DType::f32)).largest <= detail::least_amax;
}

using Chosen = std::vector<std::pair<TensorQuantizer*, CalibratedRange>>;

/// Sets the range of an activation after zeros, which calibration saw without a branch, or with only the
/// branch's bias and rounding. The range grows in training. The quantizer does not become unsigned: later
/// values may be negative.
void set_range_after_zeros(TensorQuantizer& q, CalibratedRange range) {
  // Only the deployed arithmetic has growing ranges.
  if (q.params().arithmetic != Arithmetic::deployed) return q.set_calibrated_range(range);
  range.is_unsigned = q.descriptor().is_unsigned();
  q.set_calibrated_range(range);
  RangeGrowth growth = q.range().growth();
  std::ranges::fill(growth.growing, 1.0f);
  q.set_growth(growth);
}

/// Sets the ranges in the order of the network. Ranges after a layer or tensor of zeros grow, except the
/// ranges of the layer's own inputs.
void set_ranges(Module& model, const Chosen& chosen) {
  const std::map<TensorQuantizer*, CalibratedRange> ranges(chosen.begin(), chosen.end());
  const auto weights = detail::quantizer_weights(model);
  bool after_zeros = false;
  std::optional<std::string> layer;  // layer of weights that are zero, during its own quantizers
  // The module tree gives the order of execution: no trace with an input is at hand here.
  for (const auto& entry : named_quantizers(model)) {
    TensorQuantizer& q = *entry.quantizer;
    const std::string owner = entry.name.substr(0, entry.name.rfind('.') + 1);
    // The inputs of a layer of zeros have normal ranges. Only quantizers after the layer see its zeros.
    after_zeros = after_zeros || (layer && owner != *layer);
    const auto weight = weights.find(&q);
    const bool is_weight = weight != weights.end();
    const auto range = ranges.find(&q);
    if (range != ranges.end() && after_zeros && !is_weight)
      set_range_after_zeros(q, range->second);
    else if (range != ranges.end())
      q.set_calibrated_range(range->second);
    if (is_weight && is_zero(weight->second.tensor())) layer = owner;
    after_zeros = after_zeros || (!is_weight && q.range().is_zero());
  }
}

void warn_of_zeros(const Chosen& chosen) {
  std::vector<std::string> names;
  for (const auto& [q, range] : chosen)
    if (q->range().is_zero()) names.push_back(q->name());
  if (names.empty()) return;
  const std::string others = names.size() > 1 ? fmt::format(", and so did {} others", names.size() - 1) : "";
  log(LogLevel::warning,
      fmt::format(
          "[calibrate] '{}' saw only zeros{}: it has no range and passes floats, until training shows "
          "other values. Calibrate with other data if you do not train",
          names.front(), others));
}

constexpr const char* kWhere = "postprocess_amax";

Tensor changed(const Tensor& amax, const std::function<float(float)>& change, const std::string& name) {
  std::vector<float> values = amax.to(DType::f32).to_vector<float>();
  for (float& value : values) {
    const float before = std::exchange(value, change(value));
    FQ_CHECK(value >= 0 && std::isfinite(value), kWhere,
             "amax {} of '{}' would become {}: it must be finite and not negative", before, name, value);
  }
  return Tensor::from(values, amax.shape()).to(amax.dtype());
}

// frexp returns a mantissa of 0.5 for powers of two. They are unchanged.
float raised_to_pow2(float value) {
  int exponent = 0;
  if (value == 0 || std::frexp(value, &exponent) == 0.5f) return value;
  return std::ldexp(1.0f, exponent);
}

void check(const AmaxAdjustment& a) {
  FQ_CHECK(a.multiply > 0 && std::isfinite(a.multiply), kWhere, "multiply is {}: use more than 0",
           a.multiply);
  const double least = a.minimum.value_or(0), most = a.maximum.value_or(least);
  FQ_CHECK(least >= 0 && most >= least && std::isfinite(most), kWhere,
           "a minimum of {} and a maximum of {}: use 0 <= minimum <= maximum", least, most);
}

}  // namespace

BatchMask mask_of_input(Module& model, const Shape& input_shape, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& node : trace(model, input_shape).nodes) {
    if (node.op != "input_part") continue;
    names.push_back(node.attribute<std::string>("name"));
    if (names.back() != name) continue;
    const Shape shape = node.attribute<Shape>("shape");
    FQ_CHECK(shape.size() == 1, "calibrate",
             "mask '{}' is an input of {} for each sample: use an input with one number per position", name,
             to_string(shape));
    return [begin = node.attribute<std::int64_t>("begin"), count = shape[0]](const Batch& batch) {
      return columns(batch.x, begin, count);
    };
  }
  FQ_CHECK(
      !names.empty(), "calibrate",
      "mask '{}' is no input of the network, which has one input: use a network with the mask as an input",
      name);
  throw ArgumentError(fmt::format("[calibrate] mask '{}' is no input of the network: its inputs are {}", name,
                                  fmt::join(names, ", ")));
}

CalibrationReport collect_ranges(Module& model, DataLoader& data, const CalibrateOptions& options) {
  check_model(model);
  detail::check_options(model, options);
  const Targets targets = activations_and_weights(model, options.keep_known).first;
  if (targets.empty()) return {};
  const auto quantizers = target_quantizers(targets);
  // set_methods replaces the methods of the descriptors. After an error, both descriptors and statistics are
  // restored.
  CalibrationUndo undo(quantizers);
  detail::set_methods(targets, options);
  CalibrationReport report;
  report.passes = begin(quantizers, options.keep_collected);
  if (options.ranks)
    run_on_ranks(model, data, quantizers, options, report);
  else
    run_passes(model, data, quantizers, options, *one_rank(), report);
  FQ_CHECK(report.samples > 0, "calibrate", "there is no data: use at least one image");
  for (auto* q : quantizers)
    FQ_CHECK(!q->observer().calibrator().empty(), "calibrate",
             "'{}' has seen no data: no forward pass reaches it", q->name());
  undo.keep();
  return report;
}

CalibrationReport choose_ranges(Module& model, const CalibrateOptions& options) {
  check_model(model);
  detail::check_options(model, options);
  const auto [activations, weights] = activations_and_weights(model, options.keep_known);
  CalibrationUndo undo(target_quantizers(activations)), undo_weights(target_quantizers(weights));
  detail::set_methods(activations, options);
  detail::set_methods(weights, options);
  // Weights do not depend on data: each is collected as a whole, without a forward pass.
  collect_weights(weights);
  Chosen chosen;
  for (const auto* targets : {&weights, &activations})
    for (const auto& [entry, weight] : *targets) {
      CalibratedRange range = entry.quantizer->observer().range(detail::amax_options(entry, options));
      if (weight.defined())
        range.amax = detail::ranges_with_lattices(*entry.quantizer, weight.tensor(), range.amax);
      chosen.emplace_back(entry.quantizer, std::move(range));
    }
  set_ranges(model, chosen);
  // A weight changes in training, so that its statistics are of no further use.
  for (const auto& target : weights) target.entry.quantizer->observer().calibrator().reset();
  undo.keep();
  undo_weights.keep();
  floor_dead_channels(model);
  warn_of_zeros(chosen);
  (void)detail::fit_ggml_weights(model, options.keep_known);  // `quantize` has warned
  return {.quantizers = static_cast<int>(chosen.size())};
}

CalibrationReport calibrate(Module& model, DataLoader& data, const CalibrateOptions& options) {
  check_model(model);
  detail::check_options(model, options);
  const Targets activations = activations_and_weights(model, options.keep_known).first;
  // Covers both parts: an error in the choice of ranges also restores the statistics.
  CalibrationUndo undo(target_quantizers(activations));
  CalibrationReport report = collect_ranges(model, data, options);
  FQ_CHECK(!options.mask || report.samples == 0 || report.masked > 0, "calibrate",
           "mask: no tensor of the model has its positions: use [N, T] for samples of T positions");
  report.quantizers = choose_ranges(model, options).quantizers;
  undo.keep();
  return report;
}

int postprocess_amax(Module& model, std::string_view pattern, const std::function<float(float)>& change) {
  // All new ranges are checked before the first is set: an error changes nothing.
  std::vector<std::pair<TensorQuantizer*, Tensor>> ranges;
  visit_quantizers(model, pattern, kWhere, [&](const NamedQuantizer& entry) {
    if (const Tensor amax = entry.quantizer->amax(); amax.defined())
      ranges.emplace_back(entry.quantizer, changed(amax, change, entry.name));
  });
  for (const auto& [quantizer, amax] : ranges) quantizer->set_amax(amax);
  return static_cast<int>(ranges.size());
}

int postprocess_amax(Module& model, const AmaxAdjustment& a) {
  check(a);
  return postprocess_amax(model, a.pattern, [&](float amax) {
    // Rounded to f32 once, after all steps.
    double value = amax * a.multiply;
    if (a.minimum) value = std::max(value, *a.minimum);
    if (a.maximum) value = std::min(value, *a.maximum);
    const auto rounded = static_cast<float>(value);
    return a.pow2 ? raised_to_pow2(rounded) : rounded;
  });
}

}  // namespace fq
