#include "fakequant/network/calibration.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/data/some_samples.h"
#include "fakequant/train/ranks/shares.h"

namespace fq {
namespace {

constexpr const char* kCalibrate = "calibrate";

void tell(const NetworkCalibrateOptions& options, const std::string& line) {
  if (options.on_line) options.on_line(line);
}

DataLoader rank_loader(const DataLoader& loader, const NetworkCalibrateOptions& options) {
  return detail::loader_beside(
      loader, options.ranks ? share_of_rank(loader.options(), *options.ranks) : loader.options());
}

bool has(const CollectedSamples& collected, const CalibrationShare& share) {
  return std::ranges::binary_search(collected.shares, share);
}

void add(CollectedSamples& collected, std::int64_t samples, const std::vector<CalibrationShare>& shares) {
  collected.count += samples;
  collected.shares.insert(collected.shares.end(), shares.begin(), shares.end());
  std::ranges::sort(collected.shares);
}

/// A state that is already merged as a whole is not counted twice, so that a merge may be repeated.
void merge_state(Module& model, const std::string& path, bool first, CollectedSamples& collected,
                 const NetworkCalibrateOptions& options) {
  const StateDict state = load_state(path, "calibration");
  const auto shares = calibration_shares(state, path);
  const auto known = std::ranges::count_if(shares, [&](const auto& share) { return has(collected, share); });
  FQ_CHECK(known == 0 || known == std::ssize(shares), kCalibrate,
           "{} and the states before it have samples in common: merge states of others", path);
  if (known > 0) {
    check_merges(model, state, path);
    return tell(options, fmt::format("{} is in it already, and is not counted again", path));
  }
  const auto take = first ? load_calibration_state : merge_calibration_state;
  add(collected, take(model, state, path), shares);
}

CollectedSamples merge_states(Module& model, const NetworkCalibrateOptions& options) {
  CollectedSamples out;
  for (std::size_t i = 0; i < options.states.size(); ++i)
    merge_state(model, options.states[i], i == 0, out, options);
  if (out.count > 0) tell(options, fmt::format("{} samples collected before", out.count));
  return out;
}

/// A run that is repeated after it was killed while writing its state finds its samples there.
void observe(Module& model, DataLoader& loader, const CalibrateOptions& observers,
             CollectedSamples& collected, const NetworkCalibrateOptions& options) {
  const bool shared = options.keep_shares || !collected.shares.empty();
  const CalibrationShare share = shared ? calibration_share(loader) : CalibrationShare{};
  if (shared && has(collected, share))
    return tell(options,
                fmt::format("the {} samples are in it already, and are not counted again", share.images));
  DataLoader own = rank_loader(loader, options);
  const CalibrationReport report = collect_ranges(model, own, observers);
  FQ_CHECK(!options.mask || report.samples == 0 || report.masked > 0, kCalibrate,
           "--mask: no tensor of the network has its positions: give the mask of the sequences");
  add(collected, report.samples, shared ? std::vector{share} : std::vector<CalibrationShare>{});
}

/// Runs the algorithm on weights of a config.
class WeightAlgorithm {
 public:
  WeightAlgorithm(const QuantConfig& config, const NetworkCalibrateOptions& options)
      : algorithm_(config), options_(options) {}

  void before(Module& model, const DataLoader& data) {
    DataLoader own = rank_loader(data, options_);
    note(algorithm_.before(model, own, options_.ranks));
  }
  void after(Module& model, const DataLoader& data) {
    DataLoader own = rank_loader(data, options_);
    note(algorithm_.after(model, own, options_.ranks));
    FQ_CHECK(changed_ > 0 || algorithm_.name().empty(), kCalibrate,
             "{} found no layer that it can change{}: use another algorithm or format, or none",
             algorithm_.name(), reason_);
  }

 private:
  void note(const ptq::Report& report) {
    changed_ += report.layers.size();
    if (reason_.empty() && !report.skipped.empty())
      reason_ = fmt::format(" ('{}' {})", report.skipped.front().path, report.skipped.front().reason);
    if (options_.on_weights) options_.on_weights(algorithm_.name(), report);
  }

  const ptq::Algorithm algorithm_;
  const NetworkCalibrateOptions& options_;
  std::size_t changed_ = 0;
  std::string reason_;  // why the first layer was not changed
};

}  // namespace

void fold_and_quantize(Network& network, const nlohmann::ordered_json& config, bool keep_batch_norm) {
  if (!keep_batch_norm && !network.folded()) network.fold();
  network.quantize(config);
}

CollectedSamples calibrate(Network& network, std::shared_ptr<const Dataset> data,
                           const NetworkCalibrateOptions& options) {
  const QuantConfig config = network.identity().config();
  Module& model = network.module();
  CalibrateOptions observers{
      .amax = config.amax, .keep_known = options.keep_known, .rules = config.calibration};
  observers.ranks = options.ranks;
  observers.mask = options.mask;
  if (options.percentile) observers.amax.percentile = *options.percentile;
  std::optional<DataLoader> loader;
  if (data != nullptr && options.samples > 0) data = some_samples(std::move(data), options.samples, 0);
  if (data != nullptr) loader.emplace(std::move(data), options.batches);
  WeightAlgorithm algorithm(config, options);
  if (loader) algorithm.before(model, *loader);
  CollectedSamples collected = merge_states(model, options);
  observers.keep_collected = collected.count > 0;
  if (loader) observe(model, *loader, observers, collected, options);
  (void)choose_ranges(model, observers);
  for (const auto& adjustment : config.postprocess) (void)postprocess_amax(model, adjustment);
  if (loader) algorithm.after(model, *loader);
  return collected;
}

QuantizationPlan auto_quantize(Network& network, DataLoader& data, const AutoQuantizeOptions& options) {
  QuantizationPlan plan = auto_quantize(network.module(), data, options);
  network.identity().set_quantization(detail::parse_json<nlohmann::ordered_json>(plan.config));
  return plan;
}

}  // namespace fq
