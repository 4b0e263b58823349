#include "fakequant/train/calibration/detail/calibration_targets.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/log.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/ranks/detail/collectives.h"

namespace fq::detail {
namespace {

// The amax of a descriptor is fixed and not calibrated.
bool needs_range(const TensorQuantizer& q, bool keep_known) {
  return q.params().enabled && q.descriptor().needs_amax() && !q.descriptor().amax().defined() &&
         !(keep_known && q.amax().defined());
}

// A shared quantizer has a path for each of its readers; any of them can match.
bool covers(const CalibrationRule& rule, const NamedQuantizer& entry) {
  const auto matches = [&](const auto& path) { return wildcard_match(rule.pattern, path); };
  return matches(entry.name) || std::ranges::any_of(entry.aliases, matches);
}

void check_amax_options(const AmaxOptions& options) {
  FQ_CHECK(options.percentile >= 0 && options.percentile <= 100, "calibrate",
           "a percentile of {}: use 0 to 100", options.percentile);
  FQ_CHECK(options.stride >= 1 && options.start_bin >= 0, "calibrate",
           "stride {} and start_bin {}: use a stride from 1 and a start_bin from 0", options.stride,
           options.start_bin);
}

std::string target_method(const CalibrationTarget& target, const CalibrateOptions& options) {
  // Later rules replace earlier ones, so that the search begins at the end.
  const auto rule = std::find_if(options.rules.rbegin(), options.rules.rend(), [&](const auto& each) {
    return !each.method.empty() && covers(each, target.entry);
  });
  if (rule != options.rules.rend()) return rule->method;
  const bool general = !target.is_weight() && !options.method.empty();
  return general ? options.method : target.entry.quantizer->descriptor().calib_method();
}

}  // namespace

std::map<const TensorQuantizer*, Variable> quantizer_weights(Module& model) {
  std::map<const TensorQuantizer*, Variable> out;
  for (auto& [path, module] : model.named_modules()) {
    auto* quant = dynamic_cast<QuantModule*>(module);
    auto* quantizer = quant != nullptr ? quant->weight_quantizer() : nullptr;
    if (quantizer == nullptr) continue;
    // `emplace` keeps the first weight of a shared quantizer.
    for (auto* part : quantizer_parts(*quantizer)) out.emplace(part, quant->quantized_weight());
  }
  return out;
}

std::vector<CalibrationTarget> calibration_targets(Module& model, bool keep_known) {
  const auto weights = quantizer_weights(model);
  std::vector<CalibrationTarget> out;
  for (auto& entry : named_quantizers(model)) {
    if (!needs_range(*entry.quantizer, keep_known)) continue;
    const auto found = weights.find(entry.quantizer);
    out.push_back({std::move(entry), found == weights.end() ? Variable() : found->second});
  }
  return out;
}

void collect_whole(TensorQuantizer& quantizer, const Tensor& x) {
  quantizer.observer().collect(x);  // this may replace the calibrator
  for (int pass = 1; pass < quantizer.observer().calibrator().passes(); ++pass) {
    quantizer.observer().calibrator().next_pass();
    quantizer.observer().collect(x);
  }
}

void check_options(Module& model, const CalibrateOptions& options) {
  FQ_CHECK(options.samples >= 0, "calibrate", "{} samples: use 1 or more, or 0 for all", options.samples);
  check_amax_options(options.amax);
  for (const auto& rule : options.rules) {
    check_amax_options(rule.amax);
    // Throws for a pattern without a match.
    visit_quantizers(model, rule.pattern, "calibrate", [](const NamedQuantizer&) {});
  }
}

void set_methods(const std::vector<CalibrationTarget>& targets, const CalibrateOptions& options) {
  for (const auto& target : targets) {
    try {
      set_calib_method(*target.entry.quantizer, target_method(target, options));
      // Blocks need the shape of the tensor, so that their calibrator is created with the first batch.
      if (target.entry.quantizer->descriptor().block_sizes().empty())
        (void)target.entry.quantizer->observer()
            .calibrator();  // refuses what cannot be made, before any data
    } catch (const ArgumentError& error) {
      throw ArgumentError(fmt::format("{}, for '{}'", error.what(), target.entry.name));
    }
  }
}

AmaxOptions amax_options(const NamedQuantizer& entry, const CalibrateOptions& options) {
  // As for methods, the last rule that matches decides.
  const auto rule = std::find_if(options.rules.rbegin(), options.rules.rend(),
                                 [&](const auto& each) { return covers(each, entry); });
  return rule != options.rules.rend() ? rule->amax : options.amax;
}

CalibrationUndo::CalibrationUndo(const std::vector<TensorQuantizer*>& quantizers) {
  for (auto* q : quantizers) {
    // set_calib_method changes the descriptor, so that it is restored with the statistics.
    before_.push_back({q, q->descriptor(), {}});
    q->observer().save(before_.back().collected, "q");
  }
}

CalibrationUndo::~CalibrationUndo() {
  for (const auto& [q, descriptor, collected] : before_) {
    try {
      if (!(q->descriptor() == descriptor)) q->set_descriptor(descriptor);
      q->observer().load(collected, "q");
    } catch (const std::exception& error) {  // a destructor must not throw
      log(LogLevel::warning, error.what());
    }
  }
}

std::string_view method_of_one_process(const std::vector<TensorQuantizer*>& quantizers) {
  for (auto* quantizer : quantizers) {
    const auto method = quantizer->observer().calibrator().method();
    const auto* known = find_calib_method(method);
    if (known == nullptr || !merges_exactly(*known)) return method;
  }
  return {};
}

void merge_over_ranks(Module& model, Communicator& ranks) {
  if (ranks.size() == 1) return;
  const auto states = gather_states(ranks, calibration_state(model));
  // The first state replaces the own one and the others are added, in the same order on all ranks: equal bits
  // everywhere.
  bool first = true;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    if (!states[rank].has_sub("quantizers")) continue;  // there were fewer batches than ranks
    const auto take = std::exchange(first, false) ? load_calibration_state : merge_calibration_state;
    (void)take(model, states[rank], fmt::format("rank {}", rank));
  }
}

}  // namespace fq::detail
