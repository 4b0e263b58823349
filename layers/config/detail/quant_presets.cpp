#include "fakequant/layers/config/detail/quant_presets.h"

#include <map>
#include <optional>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq::detail {
namespace {

constexpr NumBits kE4m3{4, 3}, kE2m1{2, 1}, kE8m0{8, 0};

/// Returns fields of narrow integer weights with a range for each output channel.
PartialQuantParams weights(int bits) { return {.num_bits = bits, .axis = 0, .narrow_range = true}; }

/// Returns fields of binary weights: 2 bits, each weight by its sign only.
PartialQuantParams signs() {
  PartialQuantParams out = weights(2);
  out.binary = true;
  return out;
}

PartialQuantParams blocks(NumBits bits, std::map<int, std::int64_t> lengths) {
  return {.num_bits = bits, .block_sizes = BlockSizes{std::move(lengths)}};
}

/// Returns fields of blocks along the last axis, with ranges from each input.
PartialQuantParams dynamic_blocks(NumBits bits, std::int64_t length, NumBits scale_bits) {
  return {.num_bits = bits, .block_sizes = BlockSizes{{{-1, length}}, BlockType::dynamic, scale_bits}};
}

PartialQuantParams mx(NumBits bits) { return dynamic_blocks(bits, 32, kE8m0); }
PartialQuantParams nvfp4(std::int64_t length) { return dynamic_blocks(kE2m1, length, kE4m3); }
/// Returns fields of NVFP4 with fixed ranges. Calibration finds the best E4M3 scale of each block.
PartialQuantParams swept_nvfp4(std::int64_t length) {
  return {.num_bits = kE2m1,
          .block_sizes = BlockSizes{{{-1, length}}, BlockType::fixed, kE4m3},
          .calib_method = "scale_sweep"};
}
PartialQuantParams fp8() { return {.num_bits = kE4m3}; }
PartialQuantParams integers(int bits) { return {.num_bits = bits}; }
// No fields: the quantizer stays disabled.
constexpr std::nullopt_t off = std::nullopt;

/// Returns fields of ggml's blocks: 32 elements with a range from each input.
PartialQuantParams ggml(int bits) {
  return {.num_bits = bits, .block_sizes = BlockSizes{{{-1, 32}}, BlockType::dynamic}};
}
/// Returns fields of an input with a range for each row.
PartialQuantParams row_wise() {
  return {.num_bits = 8, .block_sizes = BlockSizes{{{-1, Granularity::whole}}}, .dynamic = true};
}
/// Returns fields of an input with a range for each sample.
PartialQuantParams sample_wise() {
  return {.num_bits = 8, .axis = Axes(0), .is_unsigned = true, .dynamic = true};
}

/// Fields for each kind of quantizer. A quantizer without fields stays disabled.
struct Preset {
  std::optional<PartialQuantParams> weight, input;
  std::string prefix = "*";
  std::string algorithm = {};                     // algorithm on weights, for constants
  Target target = Target::ort;                    // engine of the format
  std::optional<PartialQuantParams> cache = off;  // keys and values
};
using Presets = std::map<std::string, Preset, std::less<>>;

// Weight and input of each preset. Names follow ModelOpt, torchao (8da8w, 8da4w) and ggml (q8_0, q4_0).
const Presets& presets() {
  static const Presets table{
      {"int8", {weights(8), integers(8)}},
      {"int8_weight_only", {weights(8), off}},
      {"binary", {signs(), off}},      // codes -1 and 1
      {"ternary", {weights(2), off}},  // narrow: codes -1, 0 and 1
      {"w4a8", {weights(4), integers(8)}},
      {"w3a8", {weights(3), integers(8)}},
      {"w2a8", {weights(2), integers(8)}},
      {"w4a4", {weights(4), integers(4)}},
      {"w3a3", {weights(3), integers(3)}},
      {"w2a2", {weights(2), integers(2)}},
      {"int4_blockwise", {blocks(4, {{-1, 128}}), off}},
      {"int2_blockwise", {blocks(2, {{-1, 32}}), off}},
      {"fp8", {fp8(), fp8()}},
      {"fp8_per_channel_per_token",
       {PartialQuantParams{.num_bits = kE4m3, .axis = 0},
        PartialQuantParams{
            .num_bits = kE4m3, .block_sizes = BlockSizes{{{-1, Granularity::whole}}}, .dynamic = true}}},
      {"fp8_2d_blockwise", {blocks(kE4m3, {{-1, 128}, {-2, 128}}), off}},
      {"nvfp4", {nvfp4(16), nvfp4(16)}},
      {"mxfp8", {mx(kE4m3), mx(kE4m3)}},
      {"mxfp6", {mx({3, 2}), mx({3, 2})}},
      {"mxfp4", {mx(kE2m1), mx(kE2m1)}},
      {"mxint8", {mx(8), mx(8)}},
      {"int8_dynamic", {weights(8), sample_wise(), "*", "", Target::ort_dynamic}},
      {"8da8w", {weights(8), row_wise(), "*", "", Target::xnnpack}},
      {"8da4w", {blocks(4, {{-1, 32}}), row_wise(), "*", "", Target::xnnpack}},
      {"q8_0", {ggml(8), ggml(8), "*", "", Target::ggml}},
      {"q4_0", {ggml(4), ggml(8), "*", "", Target::ggml}},
  };
  return table;
}

Preset with(std::string algorithm, Preset preset) {
  preset.algorithm = std::move(algorithm);
  return preset;
}

/// Returns ModelOpt's constants by name.
const Presets& constants() {
  static const Presets table{
      {"INT8_DEFAULT_CFG", presets().at("int8")},
      {"INT8_WEIGHT_ONLY_CFG", presets().at("int8_weight_only")},
      {"FP8_DEFAULT_CFG", presets().at("fp8")},
      {"FP8_PER_CHANNEL_PER_TOKEN_CFG", presets().at("fp8_per_channel_per_token")},
      {"FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", presets().at("fp8_2d_blockwise")},
      {"INT4_BLOCKWISE_WEIGHT_ONLY_CFG", presets().at("int4_blockwise")},
      {"NVFP4_DEFAULT_CFG", presets().at("nvfp4")},
      {"NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG", {swept_nvfp4(16), nvfp4(16)}},
      {"NVFP4_MLP_ONLY_CFG", {nvfp4(16), nvfp4(16), "*mlp*"}},
      {"NVFP4_MLP_WEIGHT_ONLY_CFG", {nvfp4(32), off, "*mlp*"}},
      {"W4A16_NVFP4_CFG", {nvfp4(16), off}},
      {"W4A8_NVFP4_FP8_CFG", {nvfp4(32), fp8()}},
      {"W4A8_MXFP4_FP8_CFG", {mx(kE2m1), fp8()}},
      {"MXFP4_MLP_WEIGHT_ONLY_CFG", {mx(kE2m1), off, "*mlp*"}},
      {"MXFP4_DEFAULT_CFG", presets().at("mxfp4")},
      {"MXFP6_DEFAULT_CFG", presets().at("mxfp6")},
      {"MXFP8_DEFAULT_CFG", presets().at("mxfp8")},
      {"MXINT8_DEFAULT_CFG", presets().at("mxint8")},
      {"INT8_SMOOTHQUANT_CFG", with("smoothquant", presets().at("int8"))},
      {"INT4_AWQ_CFG", with("awq_lite", presets().at("int4_blockwise"))},
      {"W4A8_AWQ_BETA_CFG",
       {PartialQuantParams{.sequence = {blocks(4, {{-1, 128}}), fp8()}}, fp8(), "*", "awq_lite"}},
      {"FP8_KV_CFG", {off, off, "*", {}, Target::ort, fp8()}},
      {"NVFP4_KV_CFG", {off, off, "*", {}, Target::ort, nvfp4(16)}},
      {"NVFP4_AWQ_LITE_CFG", with("awq_lite", presets().at("nvfp4"))},
  };
  return table;
}

/// Returns the unavailable constants of ModelOpt, each with the missing feature.
const std::map<std::string, std::string, std::less<>>& unavailable() {
  static const std::map<std::string, std::string, std::less<>> table{
      {"NVFP4_AWQ_CLIP_CFG", "clipped ranges of dynamic blocks"},
      {"NVFP4_AWQ_FULL_CFG", "clipped ranges of dynamic blocks"},
      {"NVFP4_SVDQUANT_DEFAULT_CFG", "the algorithm svdquant"},
      {"NVFP4_W4A4_WEIGHT_LOCAL_HESSIAN_CFG", "the algorithm local_hessian"},
      {"NVFP4_FOUR_OVER_SIX_CFG", "four-over-six blocks"},
      {"FP8_AFFINE_KV_CFG", "affine ranges"},
      {"NVFP4_AFFINE_KV_CFG", "affine ranges"},
      {"NVFP4_KV_ROTATE_CFG", "rotations of keys"},
      {"NVFP4_EXPERTS_ONLY_CFG", "a mixture of experts"},
      {"NVFP4_OMLP_ONLY_CFG", "rules for only the output projection of attention and the MLP"},
      {"MAMBA_MOE_FP8_AGGRESSIVE_CFG", "a mixture of experts"},
      {"MAMBA_MOE_FP8_CONSERVATIVE_CFG", "a mixture of experts"},
      {"MAMBA_MOE_NVFP4_AGGRESSIVE_CFG", "a mixture of experts"},
      {"MAMBA_MOE_NVFP4_CONSERVATIVE_CFG", "a mixture of experts"},
  };
  return table;
}

/// Returns the presets that resemble a name used by other tools.
const std::map<std::string, std::vector<std::string>, std::less<>>& meanings() {
  static const std::map<std::string, std::vector<std::string>, std::less<>> table{
      {"int4", {"int4_blockwise", "w4a8", "w4a4"}},
      {"int3", {"w3a8", "w3a3"}},
      {"int2", {"int2_blockwise", "w2a8", "w2a2"}},
      {"w8a8", {"int8"}},
      {"w8a16", {"int8_weight_only"}},
      {"w4a16", {"int4_blockwise"}},
      {"4bit", {"int4_blockwise", "w4a8", "w4a4", "nvfp4", "mxfp4"}},
      {"8bit", {"int8", "fp8", "mxfp8"}},
      {"fp4", {"nvfp4", "mxfp4"}},
      {"fp6", {"mxfp6"}},
      {"e4m3", {"fp8", "mxfp8"}},
      {"mx", {"mxfp8", "mxfp6", "mxfp4", "mxint8"}},
  };
  return table;
}

std::string other_presets(std::string_view name) {
  const auto meant = meanings().find(name);
  if (meant == meanings().end()) return did_you_mean(name, preset_names());
  return fmt::format(": did you mean {}?", alternatives(meant->second));
}

const Preset& preset_named(std::string_view name) {
  if (const auto found = unavailable().find(name); found != unavailable().end())
    throw ArgumentError(fmt::format("[quantize] '{}' needs {}, which is not available: use one of {}", name,
                                    found->second, fmt::join(preset_names(), ", ")));
  const Presets& table = constants().contains(name) ? constants() : presets();
  const auto found = table.find(name);
  FQ_CHECK(found != table.end(), "quantize", "there is no preset '{}'{}", name, other_presets(name));
  return found->second;
}

// Not by_user: the target may still choose sign and axis.
QuantRule rule(std::string pattern, const PartialQuantParams& fields) {
  return {.pattern = std::move(pattern), .fields = fields, .by_user = false};
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, preset] : presets()) names.push_back(name);
  return names;
}

std::vector<QuantRule> preset_rules(std::string_view name, const std::string& within) {
  const auto& [weight, input, part, algorithm, target, cache] = preset_named(name);
  FQ_CHECK(within.ends_with('*'), "quantize",
           "the pattern '{}' of preset '{}' does not end in '*': use a pattern like 'conv1.*'", within, name);
  FQ_CHECK(within == "*" || part == "*", "quantize",
           "the preset '{}' covers only '{}': use another preset for a pattern", name, part);
  // Some constants cover a part of a network ("*mlp*"); a pattern of the user replaces "*".
  const std::string& prefix = within == "*" ? part : within;
  std::vector<QuantRule> out;
  if (weight) out.push_back(rule(prefix + "weight_quantizer", *weight));
  if (input) out.push_back(rule(prefix + "input_quantizer", *input));
  if (cache) out.push_back(rule(prefix + "[kv]_bmm_quantizer", *cache));
  return out;
}

QuantConfig preset_config(std::string_view name) {
  QuantConfig config;
  config.rules = preset_rules(name);
  config.target = preset_named(name).target;
  config.weight_algorithm = preset_named(name).algorithm;
  return config;
}

}  // namespace fq::detail
