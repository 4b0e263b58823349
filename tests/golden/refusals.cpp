#include "refusals.h"

#include <algorithm>

namespace fq::golden {
namespace {

struct Refusal {
  std::string_view function, theirs, ours;
};

constexpr Refusal kRefusals[] = {
    {"max_calibrator", "detected nan", "NaN"},
    {"max_calibrator", "detected inf", "nfinit"},
    {"max_calibrator", "amax shape changed", "shape"},
    {"histogram_compute_amax", "Invalid percentile", "percentile"},
    {"histogram_compute_amax", "Unknown calibration method", "method"},
    {"histogram_collect", "only supports per tensor", "axis"},
    {"histogram_collect", "Too many bins for data range", "bins"},
    {"scaled_e4m3", "Only support E=4", "use (4, 3)"},
    {"fake_tensor_quant", "Negative values encountered in unsigned",
     "negative values and the format is unsigned"},
    {"fake_tensor_quant", "Negative values in amax", "amax has"},
    {"fake_tensor_quant", "must match the size of tensor", "broadcast"},
    {"int_cast_ste", "without overflow", "is no number of"},
    {"int4_qtensor", "is invalid for input of size", "bytes"},
    {"int4_qtensor", "even number on last dimension", "last axis must be even"},
    {"quantizer_attribute_config", "axis must be None", "block_sizes"},
    {"quantizer_attribute_config", "Only blockwise dynamic", "dynamic"},
    {"quantizer_attribute_config", "num_bits must be a positive", "0 bits"},
    {"quantizer_attribute_config", "Cannot specify only", "enable"},
    {"quantizer_attribute_config", "learn_amax is deprecated", "learn_amax"},
    {"tensor_quant", "too large for FP16", "too large for f16"},
    {"fake_quantize_per_tensor_affine", "`zero_point` must be between", "the zero point"},
    {"fake_quantize_per_tensor_affine", "`quant_min` should be less", "quant_min"},
    {"fake_quantize_per_channel_affine", "Zero-point must be", "the zero point is"},
    {"choose_qparams_affine", "is invalid for input of size", "keepdim"},
    {"choose_scale_float8", "is invalid for input of size", "block"},
    {"quantize_affine", "to be divisible by block_size", "block"},
    {"quantize_affine", "Got input dim", "block"},
    {"quantize_affine", "quant_min out of bound", "quant_min"},
    {"quantize_affine", "quant_max out of bound", "quant_max"},
    {"quantize_affine", "Unsupported dtype", "int64"},
    {"quantize_affine", "is invalid for input of size", "scale"},
    {"quantize_affine", "not implemented for 'Int4'", "int4"},
    {"quantize_affine", "'Tensor' and 'NoneType'", "zero point"},
    {"dequantize_affine", "Expected: torch.int8", "int8"},
    {"fake_quantize_affine", "zero_point should be None", "zero point"},
    {"to_mx", "must be divisible by block_size", "block"},
};

struct Accident {
  std::string_view function, output;
};
/// Codes of a block with a NaN scale: the reference casts a NaN to an integer.
constexpr Accident kAccidents[] = {{"to_mx", "codes"}};

}  // namespace

std::optional<std::string_view> expected_refusal(const Case& c) {
  const std::string function = c.text("function"), message = c.text("error_message");
  const auto found = std::ranges::find_if(kRefusals, [&](const Refusal& r) {
    return r.function == function && message.find(r.theirs) != std::string::npos;
  });
  return found == std::end(kRefusals) ? std::nullopt : std::optional(found->ours);
}

bool is_accident(std::string_view function, std::string_view output) {
  return std::ranges::any_of(kAccidents,
                             [&](const Accident& a) { return a.function == function && a.output == output; });
}

}  // namespace fq::golden
