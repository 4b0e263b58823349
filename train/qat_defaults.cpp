#include "fakequant/train/qat_defaults.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/config/detail/quant_rules.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/train/data/subset.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/ptq/detail/float_run.h"

namespace fq {
namespace {

// Rates above kLowRate are scaled down in runs of fewer than kFullRateSteps steps (`short_run_rate`).
constexpr double kLowRate = 5e-4;
constexpr std::int64_t kFullRateSteps = 300;
constexpr int kBits = 8, kLowBits = 4, kLowBlockBits = 3, kFewestBits = 2;

// Returns whether the pattern selects by position in the graph: @first, @last, @sums, @residual.
bool names_edge(const std::string& pattern) { return pattern.starts_with('@'); }

bool names_attention(const std::string& pattern) {
  return pattern.ends_with("bmm_quantizer") || pattern.ends_with("softmax_quantizer");
}

/// Returns whether a rule counts: rules of edge layers and of the products of attention do not.
bool counts(const QuantRule& rule) { return !names_edge(rule.pattern) && !names_attention(rule.pattern); }

bool have_blocks(const PartialQuantParams& fields) { return fields.block_sizes && *fields.block_sizes; }

// Returns whether the fields turn on integers whose range does not come from each input.
bool are_fixed_integers(const PartialQuantParams& fields) {
  const bool dynamic = fields.dynamic && fields.dynamic->value_or(false);
  return fields.enable.value_or(true) && fields.num_bits && *fields.num_bits &&
         (*fields.num_bits)->is_integer() && !dynamic;
}

bool are_static_integers(const PartialQuantParams& fields) {
  return are_fixed_integers(fields) && !have_blocks(fields);
}

bool are_integer_blocks(const PartialQuantParams& fields, int bits) {
  return are_fixed_integers(fields) && have_blocks(fields) &&
         (*fields.block_sizes)->type == BlockType::fixed && (*fields.num_bits)->bits() <= bits;
}

bool are_low_blocks(const PartialQuantParams& fields) { return are_integer_blocks(fields, kLowBlockBits); }

// Formats other than static integers and low integer blocks count as 8 bits: settings for few bits are not
// for them.
int smallest_bits(const PartialQuantParams& fields) {
  const bool count = are_static_integers(fields) || are_low_blocks(fields);
  int bits = count ? (*fields.num_bits)->bits() : kBits;
  for (const auto& part : fields.sequence) bits = std::min(bits, smallest_bits(part));
  return bits;
}

/// Returns whether a quantizer of any format, blocks included, is narrow.
bool is_narrow(const PartialQuantParams& fields) {
  const bool off = !fields.enable.value_or(true) || !fields.num_bits || !*fields.num_bits;
  return std::ranges::any_of(fields.sequence, is_narrow) || (!off && (*fields.num_bits)->bits() <= kLowBits);
}

/// Returns whether a quantizer is on and its format is coarser than 8-bit integers.
bool are_coarser_than_int8(const PartialQuantParams& fields) {
  const bool off = !fields.enable.value_or(true) || !fields.num_bits || !*fields.num_bits;
  return std::ranges::any_of(fields.sequence, are_coarser_than_int8) ||
         (!off && (!(*fields.num_bits)->is_integer() || (*fields.num_bits)->bits() < kBits));
}

bool are_narrow_float_blocks(const PartialQuantParams& fields) {
  return fields.sequence.empty() && is_narrow(fields) && !(*fields.num_bits)->is_integer() &&
         fields.block_sizes && *fields.block_sizes;
}

// Considers only patterns that match every layer ("*weight_quantizer"): edge rules replace formats in them.
void name_quantizers_of_every_layer(const QuantRule& rule, QatDefaults& out) {
  for (const char* name : {"weight_quantizer", "input_quantizer"}) {
    if (!rule.pattern.starts_with('*') || rule.pattern.substr(1) != name) continue;
    if (are_static_integers(rule.fields)) out.integers.emplace_back(name);
    if (are_low_blocks(rule.fields)) out.integer_blocks.emplace_back(name);
    if (are_narrow_float_blocks(rule.fields)) out.float_blocks.emplace_back(name);
  }
}

/// Clears the names unless activations have such blocks too: weights alone in blocks keep the ranges of the
/// preset.
void choose_for_float_blocks(QatDefaults& out) {
  if (std::ranges::find(out.float_blocks, "input_quantizer") == out.float_blocks.end())
    return out.float_blocks.clear();
  out.edge_bits = 8;
}

/// Properties of all rules that count.
struct Traits {
  bool activations = false;  // activations are quantized
  bool binary = false;
  bool narrow = false;  // 4 bits or fewer, floats and blocks included
  bool coarser_than_int8 = false;
  bool low_blocks = false;  // fixed blocks of integers with 4 bits or fewer
};

Traits collect_traits(const QuantConfig& config, QatDefaults& out) {
  Traits traits;
  for (const auto& rule : config.rules) {
    if (!counts(rule)) continue;
    traits.binary = traits.binary || (rule.fields.binary && rule.fields.binary->value_or(false));
    traits.narrow = traits.narrow || is_narrow(rule.fields);
    traits.coarser_than_int8 = traits.coarser_than_int8 || are_coarser_than_int8(rule.fields);
    traits.low_blocks = traits.low_blocks || are_integer_blocks(rule.fields, kLowBits);
    out.bits = std::min(out.bits, smallest_bits(rule.fields));
    if (!rule.pattern.ends_with("weight_quantizer")) {
      out.activation_bits = std::min(out.activation_bits, smallest_bits(rule.fields));
      traits.activations = traits.activations || rule.fields.enable.value_or(true);
    }
    name_quantizers_of_every_layer(rule, out);
  }
  return traits;
}

/// Learning rates on samples, with the network's own float outputs as teacher, and on text.
struct Rates {
  double samples, distilled, text;
};

// Rates are from experiments (docs/benchmarks/low_bits.md). Fewer bits have wider steps, which weights must
// cross before a code changes, so that the rate is higher. The order of the conditions is from the most
// special format to 8-bit integers.
Rates learning_rates(const QatDefaults& format, const Traits& traits) {
  if (!format.float_blocks.empty()) return {1e-3, 1e-3, 1e-3};
  if (format.activation_bits <= kLowBits) {
    if (format.bits <= kFewestBits) return {4e-3, 4e-3, 4e-3};
    return format.bits < kLowBits ? Rates{4e-3, 2e-3, 2e-3} : Rates{4e-3, 1e-3, 2e-3};
  }
  if (traits.binary) return {4e-3, 4e-3, 4e-3};
  if (format.bits <= kFewestBits) return {5e-4, 5e-4, 4e-3};
  if (format.bits < kLowBits) return {5e-4, 5e-4, 2e-3};
  if (traits.narrow) return {5e-4, 5e-4, 5e-4};
  return {1e-4, 1e-4, traits.coarser_than_int8 ? 5e-4 : 3e-4};
}

// Settings for integers of 4 bits and fewer; docs/low_bits.md (Defaults) has the reasons.
void choose_for_few_bits(const Traits& traits, QatDefaults& out) {
  out.method = "one_pass_mse";
  // Histograms of "mse" have a limit of blocks per layer; "mse_search" searches each block by itself.
  out.weight_method = out.integer_blocks.empty() ? "mse" : "mse_search";
  out.edge_bits = 8;
  out.amax = traits.activations ? AmaxMode::learned : AmaxMode::frozen;
  out.amax_gradient = AmaxGradient::lsq;
  out.learn_weight_ranges = true;
  const bool beside_activations = traits.activations || !out.integer_blocks.empty();
  if (out.bits < kLowBits && out.activation_bits > kLowBits && beside_activations) out.amax_rate = 0.1;
  if (out.activation_bits <= kFewestBits) out.amax_rate = 3;
}

using nlohmann::ordered_json;

constexpr const char* kFunction = "preset_config";
constexpr const char* kEdges[] = {"@first.*", "@last.*"};  // also the matrices of a recurrent layer
constexpr const char* kSums = "@sums.*";
constexpr const char* kResidualSums = "@residual.*";

void add_rule(ordered_json& config, const std::string& pattern, const char* field,
              const ordered_json& value) {
  detail::append_rule(config, {{"pattern", pattern}, {field, value}});
}

/// Adds rules for blocks with E4M3 scales. The scales become static, so that they can be chosen by search.
void add_sweep_rules(ordered_json& config, const QuantConfig& preset) {
  bool any = false;
  for (const auto& rule : preset.rules) {
    const auto& blocks = rule.fields.block_sizes;
    if (!rule.pattern.ends_with("weight_quantizer") || !blocks || !*blocks) continue;
    if ((*blocks)->scale_bits != NumBits(4, 3)) continue;
    // The preset computes the scales from the values at each call (type "dynamic"). A search needs scales
    // that calibration sets.
    ordered_json sizes{{"type", "static"}, {"scale_bits", {4, 3}}};
    for (const auto& [axis, length] : (*blocks)->lengths) sizes[std::to_string(axis)] = length;
    detail::append_rule(config,
                        {{"pattern", rule.pattern}, {"block_sizes", sizes}, {"calib_method", "scale_sweep"}});
    any = true;
  }
  FQ_CHECK(any, kFunction,
           "weight_method is scale_sweep, which is for weights in blocks with scales of E4M3: use it with "
           "nvfp4, or mse_search");
}

/// Returns whether the quantizer takes its ranges from the weight, so that no method chooses them.
bool follows_weights(const PartialQuantParams& fields) {
  const auto on = [](const auto& field) { return field && field->value_or(false); };
  const bool dynamic_blocks =
      fields.block_sizes && *fields.block_sizes && (*fields.block_sizes)->type == BlockType::dynamic;
  return dynamic_blocks || on(fields.dynamic) || on(fields.binary);
}

/// Throws ArgumentError for a method that the weights of the preset cannot use.
void check_weight_method(const std::string& name, const QuantConfig& preset, const std::string& method) {
  if (method == "max" || method == "scale_sweep") return;
  // fit_ggml_weights has a search for both error methods, although the scales come from the weights.
  const bool blocks_of_ggml = preset.target == Target::ggml;
  if (blocks_of_ggml && (method == "mse" || method == "mse_search")) return;
  for (const auto& rule : preset.rules)
    FQ_CHECK(!rule.pattern.ends_with("weight_quantizer") || !follows_weights(rule.fields), kFunction,
             "weight_method is {}: the ranges of {} are computed from the weights, use {}", method, name,
             blocks_of_ggml ? "max, mse or mse_search" : "max, or scale_sweep with nvfp4");
}

bool sweeps(const QuantConfig& preset) {
  return std::ranges::any_of(preset.rules,
                             [](const auto& rule) { return rule.fields.calib_method == "scale_sweep"; });
}

/// Sets the weights of the edge layers to "max": they have no blocks with scales to search for.
void take_back_sweep_at_edges(ordered_json& config) {
  for (const char* edge : kEdges)
    add_rule(config, std::string(edge) + "weight_quantizer", "calib_method", "max");
}

/// Sets formats of the edge layers. Instead of 4-bit floats in blocks, they have E4M3 with fixed ranges.
void add_edge_rules(ordered_json& config, const QatDefaults& defaults, std::int64_t bits) {
  for (const char* edge : kEdges) {
    for (const auto& quantizer : defaults.integers) add_rule(config, edge + quantizer, "num_bits", bits);
    // Null block_sizes replace the blocks of the preset; axis 0 is one range per output channel.
    for (const auto& quantizer : defaults.integer_blocks)
      detail::append_rule(
          config, {{"pattern", edge + quantizer}, {"num_bits", bits}, {"block_sizes", nullptr}, {"axis", 0}});
    for (const auto& quantizer : defaults.float_blocks)
      detail::append_rule(config,
                          {{"pattern", edge + quantizer}, {"num_bits", {4, 3}}, {"block_sizes", nullptr}});
  }
}

void check_edge_bits(std::int64_t bits, const QatDefaults& defaults) {
  const bool some =
      !defaults.integers.empty() || !defaults.integer_blocks.empty() || !defaults.float_blocks.empty();
  FQ_CHECK(bits == 0 || some, kFunction,
           "edge_bits is for integers with fixed ranges (int8, w4a4, ..), and for nvfp4 and mxfp4");
  FQ_CHECK(bits == 0 || (bits >= 2 && bits <= 16), kFunction, "edge_bits is {}: use 2 to 16, or 0", bits);
  FQ_CHECK(bits == 0 || bits == 8 || defaults.float_blocks.empty(), kFunction,
           "edge_bits is {}: use 8 (E4M3) or 0 with blocks of 4-bit floats", bits);
}

bool rounds_inputs_to_integers(const QatDefaults& defaults) {
  return std::ranges::find(defaults.integers, "input_quantizer") != defaults.integers.end();
}

std::string edge_text(const NumBits& bits) { return bits.is_integer() ? to_string(bits) + " bits" : "E4M3"; }

constexpr std::int64_t kSamples = 512, kBatch = 64;
constexpr double kMemorized = 0.99, kLowRankRate = 1e-3, kTextRangeRate = 0.1;

std::string describe_ranges(const TrainerOptions& options) {
  const char* gradient = options.ranges.amax_gradient == AmaxGradient::lsq ? "lsq" : "clip";
  std::string out = options.ranges.amax == AmaxMode::running ? "running" : "frozen";
  if (options.ranges.amax == AmaxMode::learned)
    out =
        fmt::format("learned ({}){}", gradient, options.ranges.learn_weight_ranges ? ", of weights too" : "");
  else if (options.ranges.learn_weight_ranges)
    out += fmt::format(", of weights learned ({})", gradient);
  if (options.ranges.amax_rate != 1) out += fmt::format(" at {} times the rate", options.ranges.amax_rate);
  return out;
}

void complete_teacher(DistillationOptions& out, const QatDefaults& defaults, const TrainingChoices& choices,
                      bool itself_on_text) {
  if (itself_on_text) {
    out.temperature = defaults.text_temperature;
    if (defaults.text_teacher_share > 0) out.weight = defaults.text_teacher_share;
  }
  out.temperature = choices.temperature.value_or(out.temperature);
  out.weight = choices.teacher_share.value_or(out.weight);
}

}  // namespace

QatDefaults qat_defaults(const QuantConfig& config) {
  QatDefaults out;
  const Traits traits = collect_traits(config, out);
  choose_for_float_blocks(out);
  if (traits.low_blocks) out.weight_method = "mse_search";
  if (out.bits <= kLowBits) choose_for_few_bits(traits, out);
  const Rates rates = learning_rates(out, traits);
  out.learning_rate = rates.samples;
  out.distilled_learning_rate = rates.distilled;
  out.text_learning_rate = rates.text;
  if (std::max({rates.samples, rates.distilled, rates.text}) > kLowRate) out.full_rate_steps = kFullRateSteps;
  // Targets that round only inputs of linear layers at run time leave additions in floats anyway.
  out.float_residuals = traits.activations && !target_profile(config.target).rounds_inputs;
  out.text_keeps_activations = out.bits == kLowBits && out.activation_bits > kLowBits;
  // As measured in docs/benchmarks/low_bits.md: integers of 8 bits are near enough without a forward pass in
  // float a step.
  if (traits.coarser_than_int8) out.text_teacher_share = 0.5;
  return out;
}

double short_run_rate(double rate, std::int64_t steps, std::int64_t full_rate_steps) noexcept {
  constexpr double least = 1e-4;
  if (steps >= full_rate_steps) return rate;
  const double share = static_cast<double>(steps) / static_cast<double>(full_rate_steps);
  return std::max(rate * share * share, std::min(rate, least));
}

ordered_json preset_config(const std::string& preset, const PresetChoices& choices) {
  ordered_json config{{"preset", preset}};
  const QuantConfig whole = QuantConfig::from_json(config);
  const QatDefaults defaults = qat_defaults(whole);
  if (defaults.method != "max") config["algorithm"] = defaults.method;
  const std::string method = choices.weight_method.value_or(defaults.weight_method);
  const std::int64_t bits = choices.edge_bits.value_or(defaults.edge_bits);
  check_edge_bits(bits, defaults);
  if (choices.weight_method) check_weight_method(preset, whole, *choices.weight_method);
  if (method == "scale_sweep")
    add_sweep_rules(config, whole);
  else if (method != "max")
    add_rule(config, "*weight_quantizer", "calib_method", method);
  // Later rules win: the rules of the edges must follow the rules of all layers.
  if (bits > 0 && (method == "scale_sweep" || sweeps(whole))) take_back_sweep_at_edges(config);
  if (bits > 0) add_edge_rules(config, defaults, bits);
  // Additions and pools have no products that fewer bits would make faster.
  if (bits > 0 && defaults.activation_bits <= kLowBits && rounds_inputs_to_integers(defaults))
    add_rule(config, kSums, "num_bits", bits);
  if (defaults.float_residuals) add_rule(config, kResidualSums, "enable", false);
  return config;
}

std::string describe_choice(const QuantConfig& config) {
  std::string out = fmt::format("target {}, scale {}", name(config.target), config.pow2 ? "pow2" : "free");
  if (config.algorithm != "max") out += "; ranges by " + config.algorithm;
  for (const auto& rule : config.rules)
    if (rule.pattern.starts_with(kEdges[0]) && rule.fields.num_bits && *rule.fields.num_bits)
      return out + fmt::format("; {} in the first and the last layer", edge_text(**rule.fields.num_bits));
  return out;
}

void complete_training(TrainerOptions& options, const QuantConfig& config, const TrainingChoices& choices,
                       bool self, bool text) {
  QatDefaults defaults = qat_defaults(config);
  // The adapters train codes on the calibrated grid (low_rank.h), so that ranges stay as calibrated.
  if (options.low_rank.rank > 0) {
    defaults.amax = AmaxMode::frozen;
    defaults.learn_weight_ranges = false;
    defaults.learning_rate = defaults.distilled_learning_rate = defaults.text_learning_rate = kLowRankRate;
    defaults.full_rate_steps = 0;
  }
  // Only ranges of weights are learned here, at a tenth of the rate (qat_defaults.h).
  if (text && defaults.text_keeps_activations) {
    defaults.amax = AmaxMode::frozen;
    defaults.amax_rate = kTextRangeRate;
  }
  options.ranges.amax = choices.amax.value_or(defaults.amax);
  options.ranges.amax_gradient = choices.amax_gradient.value_or(defaults.amax_gradient);
  // With another mode of activations than the default, learned weight ranges are the user's choice, too.
  options.ranges.learn_weight_ranges = choices.learn_weight_ranges.value_or(
      defaults.learn_weight_ranges && options.ranges.amax == defaults.amax);
  const bool learns = options.ranges.amax == AmaxMode::learned || options.ranges.learn_weight_ranges;
  if (choices.amax_rate || learns) options.ranges.amax_rate = choices.amax_rate.value_or(defaults.amax_rate);
  options.optimizer.learning_rate = choices.learning_rate.value_or(text   ? defaults.text_learning_rate
                                                                   : self ? defaults.distilled_learning_rate
                                                                          : defaults.learning_rate);
  if (!choices.learning_rate) options.update.full_rate_steps = defaults.full_rate_steps;
  complete_teacher(options.objective.distillation, defaults, choices, self && text);
}

std::string describe_training(const TrainerOptions& options, bool self) {
  std::string out =
      fmt::format("ranges {}; learning rate {}", describe_ranges(options), options.optimizer.learning_rate);
  if (const auto& adapters = options.low_rank; adapters.rank > 0)
    out += fmt::format("; adapters of rank {} alone, times {}", adapters.rank, adapters.scale());
  if (const auto& teacher = options.objective.distillation; teacher.teacher != nullptr)
    out += fmt::format(
        "; towards {} ({}{}), a share of {}", self ? "the float network" : "the teacher", teacher.kind,
        teacher.kind == "kl" ? fmt::format(", temperature {}", teacher.temperature) : "", teacher.weight);
  return out;
}

bool is_text(const Dataset& data) {
  if (!data.token_ids()) return false;
  const std::int64_t first = 0;
  // One sample is enough: all samples of a data set have one shape.
  const auto [x, y, rows, passed_over] = data.read({&first, 1});
  return y.defined() && !is_floating(y.dtype()) && y.shape() == x.shape();
}

double float_accuracy(Module& model, const std::shared_ptr<const Dataset>& data) {
  DataLoader loader(some_samples(data, kSamples, 0),
                    {.batch_size = kBatch, .shuffle = false, .prefetch = 0, .device = model.device()});
  // Measures the network without its quantizers; their state returns at the end of the scope.
  const ptq::FloatScope float_scope(model);
  return evaluate(model, loader).accuracy;
}

bool has_memorized_training_data(double accuracy) noexcept { return accuracy >= kMemorized; }

bool follows_itself(const QuantConfig& config, double accuracy, bool text) {
  return text ? qat_defaults(config).text_teacher_share > 0 : has_memorized_training_data(accuracy);
}

}  // namespace fq
