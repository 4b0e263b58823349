#include "fakequant/train/qat_defaults.h"

#include <algorithm>

#include "fakequant/layers/config/target_profile.h"

namespace fq {
namespace {

constexpr double kLowRate = 5e-4;  // which short runs have, too
constexpr std::int64_t kFullRateSteps = 300;
constexpr int kBits = 8, kLowBits = 4, kLowBlockBits = 3, kFewestBits = 2;

bool names_edge(const std::string& pattern) { return pattern.starts_with('@'); }

bool names_attention(const std::string& pattern) {
  return pattern.ends_with("bmm_quantizer") || pattern.ends_with("softmax_quantizer");
}

/// Edges and what attention multiplies do not.
bool counts(const QuantRule& rule) { return !names_edge(rule.pattern) && !names_attention(rule.pattern); }

bool have_blocks(const PartialQuantParams& fields) { return fields.block_sizes && *fields.block_sizes; }

bool are_fixed_integers(const PartialQuantParams& fields) {
  const bool dynamic = fields.dynamic && fields.dynamic->value_or(false);
  return fields.enable.value_or(true) && fields.num_bits && *fields.num_bits &&
         (*fields.num_bits)->is_integer() && !dynamic;
}

bool are_static_integers(const PartialQuantParams& fields) {
  return are_fixed_integers(fields) && !have_blocks(fields);
}

bool are_blocks_of(const PartialQuantParams& fields, int bits) {
  return are_fixed_integers(fields) && have_blocks(fields) &&
         (*fields.block_sizes)->type == BlockType::fixed && (*fields.num_bits)->bits() <= bits;
}

bool are_low_blocks(const PartialQuantParams& fields) { return are_blocks_of(fields, kLowBlockBits); }

int bits_of(const PartialQuantParams& fields) {
  const bool count = are_static_integers(fields) || are_low_blocks(fields);
  int bits = count ? (*fields.num_bits)->bits() : kBits;
  for (const auto& part : fields.sequence) bits = std::min(bits, bits_of(part));
  return bits;
}

/// In any format, blocks included.
bool is_narrow(const PartialQuantParams& fields) {
  const bool off = !fields.enable.value_or(true) || !fields.num_bits || !*fields.num_bits;
  return std::ranges::any_of(fields.sequence, is_narrow) || (!off && (*fields.num_bits)->bits() <= kLowBits);
}

/// Neither off nor integers of 8 bits and more.
bool are_coarser_than_int8(const PartialQuantParams& fields) {
  const bool off = !fields.enable.value_or(true) || !fields.num_bits || !*fields.num_bits;
  return std::ranges::any_of(fields.sequence, are_coarser_than_int8) ||
         (!off && (!(*fields.num_bits)->is_integer() || (*fields.num_bits)->bits() < kBits));
}

bool are_narrow_float_blocks(const PartialQuantParams& fields) {
  return fields.sequence.empty() && is_narrow(fields) && !(*fields.num_bits)->is_integer() &&
         fields.block_sizes && *fields.block_sizes;
}

void name_quantizers_of_every_layer(const QuantRule& rule, QatDefaults& out) {
  for (const char* name : {"weight_quantizer", "input_quantizer"}) {
    if (!rule.pattern.starts_with('*') || rule.pattern.substr(1) != name) continue;
    if (are_static_integers(rule.fields)) out.integers.emplace_back(name);
    if (are_low_blocks(rule.fields)) out.integer_blocks.emplace_back(name);
    if (are_narrow_float_blocks(rule.fields)) out.float_blocks.emplace_back(name);
  }
}

/// Blocks of weights alone keep what they have.
void choose_for_float_blocks(QatDefaults& out) {
  if (std::ranges::find(out.float_blocks, "input_quantizer") == out.float_blocks.end())
    return out.float_blocks.clear();
  out.edge_bits = 8;
}

/// What all counted rules have.
struct Traits {
  bool activations = false;  // quantized
  bool binary = false;
  bool narrow = false;  // 4 bits and fewer, floats and blocks included
  bool coarser_than_int8 = false;
  bool low_blocks = false;  // fixed blocks of integers of 4 bits and fewer
};

Traits collect_traits(const QuantConfig& config, QatDefaults& out) {
  Traits traits;
  for (const auto& rule : config.rules) {
    if (!counts(rule)) continue;
    traits.binary = traits.binary || (rule.fields.binary && rule.fields.binary->value_or(false));
    traits.narrow = traits.narrow || is_narrow(rule.fields);
    traits.coarser_than_int8 = traits.coarser_than_int8 || are_coarser_than_int8(rule.fields);
    traits.low_blocks = traits.low_blocks || are_blocks_of(rule.fields, kLowBits);
    out.bits = std::min(out.bits, bits_of(rule.fields));
    if (!rule.pattern.ends_with("weight_quantizer")) {
      out.activation_bits = std::min(out.activation_bits, bits_of(rule.fields));
      traits.activations = traits.activations || rule.fields.enable.value_or(true);
    }
    name_quantizers_of_every_layer(rule, out);
  }
  return traits;
}

/// Learning rates on samples, towards the network's own floats, and on text.
struct Rates {
  double samples, distilled, text;
};

Rates rates_of(const QatDefaults& format, const Traits& traits) {
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

void choose_for_few_bits(const Traits& traits, QatDefaults& out) {
  out.method = "one_pass_mse";
  out.weight_method = out.integer_blocks.empty() ? "mse" : "mse_search";
  out.edge_bits = 8;
  out.amax = traits.activations ? AmaxMode::learned : AmaxMode::frozen;
  out.amax_gradient = AmaxGradient::lsq;
  out.learn_weight_ranges = true;
  const bool beside_activations = traits.activations || !out.integer_blocks.empty();
  if (out.bits < kLowBits && out.activation_bits > kLowBits && beside_activations) out.amax_rate = 0.1;
  if (out.activation_bits <= kFewestBits) out.amax_rate = 3;
}

}  // namespace

QatDefaults qat_defaults(const QuantConfig& config) {
  QatDefaults out;
  const Traits traits = collect_traits(config, out);
  choose_for_float_blocks(out);
  if (traits.low_blocks) out.weight_method = "mse_search";
  if (out.bits <= kLowBits) choose_for_few_bits(traits, out);
  const Rates rates = rates_of(out, traits);
  out.learning_rate = rates.samples;
  out.distilled_learning_rate = rates.distilled;
  out.text_learning_rate = rates.text;
  if (std::max({rates.samples, rates.distilled, rates.text}) > kLowRate) out.full_rate_steps = kFullRateSteps;
  out.float_residuals = traits.activations && !profile_of(config.target).rounds_inputs;
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

}  // namespace fq
