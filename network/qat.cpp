#include "fakequant/network/qat.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/train/calibration/detail/calibration_targets.h"
#include "fakequant/train/data/subset.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/ranks/shares.h"

namespace fq {
namespace {

constexpr const char* kCalibrate = "calibrate";

void report_progress(const NetworkCalibrateOptions& options, const std::string& line) {
  if (options.progress_callback) options.progress_callback(line);
}

// Returns the loader of this rank: its share of the batches, or all batches in one process.
DataLoader rank_loader(const DataLoader& loader, const NetworkCalibrateOptions& options) {
  return detail::same_data_loader(
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

/// Merges a calibration state. A state that is already merged as a whole is not counted twice, so that a
/// merge may be repeated.
void merge_state(Module& model, const std::string& path, bool first, CollectedSamples& collected,
                 const NetworkCalibrateOptions& options) {
  const StateDict state = load_state(path, "calibration");
  const auto shares = calibration_shares(state, path);
  const auto known = std::ranges::count_if(shares, [&](const auto& share) { return has(collected, share); });
  FQ_CHECK(known == 0 || known == std::ssize(shares), kCalibrate,
           "{} and the states before it have samples in common: merge states of other samples", path);
  if (known > 0) {
    check_merges(model, state, path);
    return report_progress(options, fmt::format("{} is merged already and is not counted again", path));
  }
  // The first state replaces the statistics of the observers, further states are added.
  const auto take = first ? load_calibration_state : merge_calibration_state;
  add(collected, take(model, state, path), shares);
}

CollectedSamples merge_states(Module& model, const NetworkCalibrateOptions& options) {
  CollectedSamples out;
  for (std::size_t i = 0; i < options.states.size(); ++i)
    merge_state(model, options.states[i], i == 0, out, options);
  if (out.count > 0) report_progress(options, fmt::format("{} samples collected before", out.count));
  return out;
}

/// Observes the data. If a run was killed while writing its state, a repeated run finds its samples in the
/// state.
void observe(Module& model, DataLoader& loader, const CalibrateOptions& observers,
             CollectedSamples& collected, const NetworkCalibrateOptions& options) {
  // The checksum of a share costs a pass over the data, so it is computed only if a state is read or written.
  const bool shared = options.keep_shares || !collected.shares.empty();
  const CalibrationShare share = shared ? calibration_share(loader) : CalibrationShare{};
  if (shared && has(collected, share))
    return report_progress(
        options,
        fmt::format("the {} samples are in the state already and are not counted again", share.images));
  DataLoader own = rank_loader(loader, options);
  const CalibrationReport report = collected.report = collect_ranges(model, own, observers);
  FQ_CHECK(
      !options.mask || report.samples == 0 || report.masked > 0, kCalibrate,
      "mask: no tensor of the model has the positions of the mask. Use [N, T] for samples of T positions");
  add(collected, report.samples, shared ? std::vector{share} : std::vector<CalibrationShare>{});
}

std::vector<TensorQuantizer*> all_quantizers(Module& model) {
  std::vector<TensorQuantizer*> out;
  for (const auto& entry : named_quantizers(model)) out.push_back(entry.quantizer);
  return out;
}

/// Runs the config's algorithm on weights.
class WeightAlgorithm {
 public:
  WeightAlgorithm(const QuantConfig& config, const NetworkCalibrateOptions& options)
      : algorithm_(config), options_(options) {}

  // An algorithm has a step before calibration, a step after it, or both (AlgorithmEntry). A missing step
  // returns an empty report.
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
    if (options_.weights_callback) options_.weights_callback(algorithm_.name(), report);
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
  observers.method = options.method;
  observers.ranks = options.ranks;
  observers.mask = options.mask;
  if (options.percentile) observers.amax.percentile = *options.percentile;
  std::optional<DataLoader> loader;
  if (data != nullptr && options.samples > 0) data = some_samples(std::move(data), options.samples, 0);
  if (data != nullptr) loader.emplace(std::move(data), options.batches);
  WeightAlgorithm algorithm(config, options);
  if (loader) algorithm.before(model, *loader);
  // An error up to `undo.keep` restores the ranges and observers, so that a failed call leaves the network as
  // it was. The algorithm on weights has its own state and is not undone.
  detail::CalibrationUndo undo(all_quantizers(model));
  CollectedSamples collected = merge_states(model, options);
  observers.keep_collected = collected.count > 0;
  if (loader) observe(model, *loader, observers, collected, options);
  collected.report.quantizers = choose_ranges(model, observers).quantizers;
  for (const auto& adjustment : config.postprocess) (void)postprocess_amax(model, adjustment);
  undo.keep();
  if (loader) algorithm.after(model, *loader);
  return collected;
}

QuantizationPlan auto_quantize(Network& network, DataLoader& data, const AutoQuantizeOptions& options) {
  QuantizationPlan plan = auto_quantize(network.module(), data, options);
  network.identity().set_quantization(detail::parse_json<nlohmann::ordered_json>(plan.config));
  return plan;
}

namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kImages = 512, kBatch = 64;
constexpr double kLeft = 0.25;  // fraction of the way from chance to float; below it a network is near chance
constexpr double kNoise = 0.02;      // of training; a smaller drop is not a loss
constexpr double kKnowledge = 0.1;   // a float network this close to chance has learned nothing
constexpr std::int64_t kFound = 64;  // number of samples for findings

// Returns the share of the most frequent class: the accuracy of a network that always predicts it.
double largest_class(const Dataset& data, std::int64_t images) {
  std::map<std::int64_t, std::int64_t> counts;
  for (const auto label : data.labels().to_vector<std::int64_t>()) ++counts[label];
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  return double(most->second) / double(images);
}

bool has_accuracy(const Network& network, const std::shared_ptr<const Dataset>& data) {
  return data != nullptr && data->classes() >= 2 && data->classes() <= network.classes() &&
         data->labels().defined() && one_class_each(network.task(), *data);
}

void report_choice(const QatOptions& options, const std::string& line) {
  if (options.choice_callback) options.choice_callback(line);
}

void quantize_float(Network& network, const std::shared_ptr<const Dataset>& data, const QatOptions& options) {
  ordered_json config = quantization_config(options.config, options.preset);
  if (options.target) config["target"] = *options.target;
  if (options.scale) config["scale"] = *options.scale;
  fold_and_quantize(network, config, options.keep_batch_norm);
  // A text with a brace is JSON, any other text is the name of a preset (`quantization_config`).
  const bool named = options.config.find('{') == std::string::npos;
  report_choice(options, fmt::format("{}, {}", named ? "preset " + options.config : "rules",
                                     describe_choice(network.identity().config())));
  // A resumed run reads its ranges from the checkpoint.
  if (!options.restore) (void)calibrate(network, data, options.calibration);
}

// Returns whether the float network is its own teacher: by the caller's choice, else never beside another
// teacher, else by the accuracy on training data.
bool chooses_itself(const Network& network, const std::shared_ptr<const Dataset>& data,
                    const QatOptions& options, const std::optional<SampleAccuracy>& before) {
  if (options.self_distillation) return *options.self_distillation;
  if (options.training.objective.distillation.teacher != nullptr) return false;
  return follows_itself(network, data, before ? std::optional(before->in_float) : std::nullopt);
}

}  // namespace

ordered_json quantization_config(const std::string& name_or_json, const PresetChoices& choices) {
  if (name_or_json.find('{') == std::string::npos) return preset_config(name_or_json, choices);
  FQ_CHECK(!choices.edge_bits && !choices.weight_method, "qat",
           "edge_bits and weight_method require the name of a preset: write rules instead");
  return detail::parse_json<ordered_json>(name_or_json);
}

TrainerOptions qat_training(std::int64_t epochs) {
  TrainerOptions out;
  out.epochs = epochs;
  out.optimizer.weight_decay = 0.01;
  out.schedule.kind = "one_cycle";
  return out;
}

bool SampleAccuracy::near_chance() const {
  return in_float > chance + kKnowledge && quantized < chance + kLeft * (in_float - chance);
}

bool SampleAccuracy::lost(const SampleAccuracy& before) const {
  return quantized < before.quantized - kNoise;
}

std::string SampleAccuracy::text() const {
  return fmt::format("{:.1f} % of {} training samples right, {:.1f} % in float", 100 * quantized, images,
                     100 * in_float);
}

std::optional<SampleAccuracy> sample_accuracy(const Network& network,
                                              const std::shared_ptr<const Dataset>& data) {
  if (!has_accuracy(network, data)) return std::nullopt;
  const auto some = some_samples(data, kImages, 0);
  Module& model = network.module();
  DataLoader loader(some, {.batch_size = kBatch, .shuffle = false, .device = model.device()});
  SampleAccuracy out{.images = some->size()};
  out.chance = largest_class(*data, data->size());
  out.in_float = float_accuracy(model, data);
  // Quantizers without a range pass floats through, so the float accuracy is the accuracy.
  out.quantized = uncalibrated_quantizers(model).empty() ? evaluate(model, loader).accuracy : out.in_float;
  return out;
}

bool follows_itself(const Network& network, const std::shared_ptr<const Dataset>& data,
                    std::optional<double> accuracy) {
  const bool text = is_text(*data);
  if (!network.quantized() || !network.task().standard()) return false;
  if (!accuracy) accuracy = !text && has_accuracy(network, data) ? float_accuracy(network.module(), data) : 0;
  return follows_itself(network.identity().config(), *accuracy, text);
}

std::string distillation_kind(const Network& network) {
  const Task task = network.task();
  return takes_classes(task.loss) || task.sequences() ? "kl" : "mse";
}

QatPlan prepare_qat(Network& network, const std::shared_ptr<const Dataset>& data, const QatOptions& options) {
  if (!network.quantized()) quantize_float(network, data, options);
  QatPlan plan{.training = options.training};
  if (options.measure) plan.before = sample_accuracy(network, data);
  plan.self_distillation = chooses_itself(network, data, options, plan.before);
  if (plan.self_distillation) {
    auto& distillation = plan.training.objective.distillation;
    // The teacher is cloned before `restore` loads the weights of an unfinished run: a resumed run has the
    // teacher of its beginning, and gives the same bits as a run without a break.
    distillation.teacher = network.float_clone().shared_module();
    distillation.kind = options.choices.distillation_kind.value_or(distillation_kind(network));
  }
  if (options.restore)
    options.restore(network);
  else
    check_calibrated(network, "qat");
  // The caller's value has precedence over the default of the format, which `complete_training` sets.
  const std::int64_t full_rate_steps = plan.training.update.full_rate_steps;
  complete_training(plan.training, network.identity().config(), options.choices, plan.self_distillation,
                    is_text(*data));
  if (full_rate_steps > 0) plan.training.update.full_rate_steps = full_rate_steps;
  report_choice(options, describe_training(plan.training, plan.self_distillation));
  return plan;
}

QatResult qat(Network& network, const std::shared_ptr<const Dataset>& data, const QatOptions& options) {
  QatPlan plan = prepare_qat(network, data, options);
  QatResult out{.self_distillation = plan.self_distillation, .before = plan.before};
  out.training = fit(network, std::make_shared<DataLoader>(data, options.batches), std::move(plan.training),
                     options.validation, options.callbacks);
  if (options.measure) out.after = sample_accuracy(network, data);
  return out;
}

void complete_training(TrainerOptions& options, const Network& network, const Dataset& data) {
  const Task task = network.task();
  options.checkpoint.model = network.identity().to_json().dump();
  if (!options.objective.loss)
    options.objective.loss = task_loss(task, data, options.objective.label_smoothing);
  if (options.objective.metrics.empty()) options.objective.metrics = task_metrics(task, data);
}

TrainingResult fit(Network& network, const std::shared_ptr<DataLoader>& batches, TrainerOptions options,
                   std::shared_ptr<DataLoader> validation, TrainerCallbacks callbacks) {
  complete_training(options, network, batches->data());
  return Trainer(network.shared_module(), batches, std::move(options), std::move(validation),
                 std::move(callbacks))
      .fit();
}

void check_calibrated(const Network& network, const std::string& function) {
  const auto missing = uncalibrated_quantizers(network.module());
  FQ_CHECK(missing.empty(), function, "{} not calibrated, {} in all: run fakequant calibrate first",
           missing.size() == 1 ? fmt::format("quantizer '{}' was", missing[0])
                               : fmt::format("quantizers '{}' were", fmt::join(missing, "', '")),
           missing.size());
}

std::vector<QuantizerFinding> quantizer_findings(const Network& network,
                                                 const std::shared_ptr<const Dataset>& data) {
  if (!uncalibrated_quantizers(network.module()).empty()) return {};
  Tensor x;
  if (data != nullptr) {
    DataLoader loader(some_samples(data, kFound, 0), {.batch_size = kFound, .shuffle = false});
    if (const auto batch = loader.next()) x = batch->x.to(network.module().device());
  }
  return quantizer_findings(network.module(), x);
}

std::string export_problem(const Network& network) {
  Module& model = network.module();
  const Target target = model_target(model);
  if (!target_profile(target).onnx || !uncalibrated_quantizers(model).empty()) return {};
  try {
    // A model without a target is exported for ONNX Runtime, as `fakequant export` does.
    const Target rules = target == Target::tensorrt ? target : Target::ort;
    check_onnx_export(model, network.identity().sample_shape, {.target = rules});
    return {};
  } catch (const ArgumentError& error) {
    const std::string message = error.what();
    // Callers print the reason in a sentence of their own, without the "[function] " of the message.
    return message.substr(message.find("] ") + 2);
  }
}

}  // namespace fq
