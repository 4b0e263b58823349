#include "fakequant/export/safetensors/detail/modelopt_layer.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq::detail {
namespace {

using Algorithm = ModeloptAlgorithm;

const Format kE4m3 = FloatFormat{4, 3};
const Format kE2m1 = FloatFormat{2, 1};

bool is_signed_integer(const QuantDescriptor& d, int bits) {
  return d.format().is_integer() && d.format().bits() == bits && !d.is_unsigned();
}

bool has_scaled_blocks(const QuantDescriptor& d, const Format& format, std::int64_t length,
                       NumBits scale_bits) {
  const BlockSizes& blocks = d.block_sizes();
  return d.format() == format && blocks.lengths == std::map<int, std::int64_t>{{-1, length}} &&
         blocks.scale_bits == scale_bits;
}

// Whether each row along the last axis has its own dynamic range.
bool per_token(const QuantDescriptor& d) {
  return d.format() == kE4m3 && d.dynamic() &&
         d.block_sizes().lengths == std::map<int, std::int64_t>{{-1, Granularity::whole}};
}

/// Returns the length of plain blocks along the last axis. 0 for other formats.
std::int64_t last_axis_block(const QuantDescriptor& d) {
  const BlockSizes& blocks = d.block_sizes();
  const bool plain = blocks.lengths.size() == 1 && blocks.lengths.begin()->first == -1 && !blocks.scale_bits;
  return plain && blocks.type == BlockType::fixed ? blocks.lengths.begin()->second : 0;
}

/// Returns the algorithm for the weight and input formats. `x` is null for an unquantized input.
Algorithm match_algorithm(const QuantDescriptor& w, const QuantDescriptor* x) {
  // Also true for one range of the whole weight: the writer repeats it for each row.
  const bool by_channel = w.block_sizes().empty() && !w.dynamic();
  const bool one_range = by_channel && w.axis().empty();
  // Weight-only formats come first, because the others read `x`.
  if (is_signed_integer(w, 8) && by_channel && x == nullptr) return Algorithm::w8a16;
  if (is_signed_integer(w, 4) && last_axis_block(w) > 0 && x == nullptr) return Algorithm::w4a16_awq;
  if (x == nullptr) return Algorithm::none;
  const bool x_one_range = x->block_sizes().empty() && x->axis().empty() && !x->dynamic();
  if (is_signed_integer(w, 8) && by_channel && is_signed_integer(*x, 8) && x_one_range)
    return Algorithm::w8a8_sq_per_channel;
  if (w.format() == kE4m3 && one_range && x->format() == kE4m3 && x_one_range) return Algorithm::fp8;
  if (w.format() == kE4m3 && by_channel && w.axis().values() == std::vector<int>{0} && per_token(*x))
    return Algorithm::fp8_per_channel_per_token;
  if (has_scaled_blocks(w, kE2m1, 16, {4, 3}) && has_scaled_blocks(*x, kE2m1, 16, {4, 3}))
    return Algorithm::nvfp4;
  if (has_scaled_blocks(w, kE4m3, 32, {8, 0}) && has_scaled_blocks(*x, kE4m3, 32, {8, 0}))
    return Algorithm::mxfp8;
  return Algorithm::none;
}

void check_blocks(const ModeloptLayer& layer, const Shape& w) {
  if (layer.group == 0) return;
  if (w.size() != 2 || w[1] % layer.group != 0)
    no_modelopt_name(layer.path, fmt::format("has the weight {}, whose last axis is not made of blocks of {}",
                                             to_string(w), layer.group));
  // Two rows share the bytes of a row in the file.
  if (layer.algorithm == Algorithm::w4a16_awq && w[0] % 2 != 0)
    no_modelopt_name(layer.path, fmt::format("has {} rows, which are packed in pairs", w[0]));
}

// Whether the quantizer is not a sequence and has the deployed arithmetic, whose codes a file can store.
bool is_plain(TensorQuantizer& q) {
  return quantizer_parts(q).front() == &q && q.params().arithmetic == Arithmetic::deployed &&
         q.quantizing() && q.descriptor().fake_quant();
}

std::string described(const ModeloptLayer& layer) {
  const auto text = [](TensorQuantizer& q) { return q.enabled() ? q.describe() : std::string("float"); };
  return fmt::format("quantizes its weight to {} and its input to {}", text(*layer.quant->weight_quantizer()),
                     text(layer.input()));
}

ModeloptLayer make_modelopt_layer(const std::string& path, QuantModule& quant) {
  // Recurrent layers quantize the input in another module.
  if (quant.input_quantizers().empty()) {
    if (quant.weight_quantizer()->enabled()) no_modelopt_name(path, "is a weight of a recurrent layer");
    return {path};
  }
  ModeloptLayer layer{path, &quant};
  TensorQuantizer &w = *quant.weight_quantizer(), &x = layer.input();
  if (!w.enabled() && !x.enabled()) return layer;
  if (w.enabled() && is_plain(w) && (!x.enabled() || is_plain(x)))
    layer.algorithm = match_algorithm(w.descriptor(), x.enabled() ? &x.descriptor() : nullptr);
  if (layer.algorithm == Algorithm::none) no_modelopt_name(path, described(layer));
  if (!w.descriptor().block_sizes().empty())
    layer.group = w.descriptor().block_sizes().lengths.begin()->second;
  check_blocks(layer, quant.quantized_weight().shape());
  return layer;
}

}  // namespace

std::string_view name(ModeloptAlgorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::w8a8_sq_per_channel:
      return "W8A8_SQ_PER_CHANNEL";
    case Algorithm::w8a16:
      return "W8A16";
    case Algorithm::fp8:
      return "FP8";
    case Algorithm::fp8_per_channel_per_token:
      return "FP8_PER_CHANNEL_PER_TOKEN";
    case Algorithm::nvfp4:
      return "NVFP4";
    case Algorithm::w4a16_awq:
      return "W4A16_AWQ";
    case Algorithm::mxfp8:
      return "MXFP8";
    case Algorithm::none:
      break;
  }
  return "";
}

void no_modelopt_name(const std::string& path, const std::string& what) {
  throw NoModeloptName(
      path, what,
      fmt::format(
          "[modelopt] '{}' {}: ModelOpt has names for layers of the presets int8 (with --target "
          "tensorrt, whose inputs are signed), int8_weight_only, fp8, fp8_per_channel_per_token, nvfp4, "
          "int4_blockwise and mxfp8, with blocks for matrices only",
          path, what));
}

std::string name_in_file(const std::string& path) {
  constexpr std::string_view ours = ".self_attn.out_proj";
  const auto at = path.rfind(ours);
  if (at == std::string::npos || !wildcard_match("model.layers.*", path.substr(0, at))) return path;
  return path.substr(0, at) + ".self_attn.o_proj" + path.substr(at + ours.size());
}

bool has_input_scale(const TensorQuantizer& q) {
  const QuantDescriptor& d = q.descriptor();
  return d.block_sizes().empty() && d.axis().empty() && !d.dynamic() &&
         (is_signed_integer(d, 8) || d.format() == kE4m3);
}

std::vector<ModeloptLayer> modelopt_layers(Module& model) {
  std::vector<ModeloptLayer> out;
  for (const auto& [path, module] : model.named_modules()) {
    auto* quant = dynamic_cast<QuantModule*>(module);
    if (quant != nullptr && quant->weight_quantizer() != nullptr)
      out.push_back(make_modelopt_layer(path, *quant));
    else if (dynamic_cast<Linear*>(module) != nullptr || dynamic_cast<Conv*>(module) != nullptr)
      out.push_back({path});
  }
  return out;
}

}  // namespace fq::detail
