#pragma once

/// Ranges that were calibrated elsewhere.

#include <string>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

/// What a file had for a model.
struct ImportedRanges {
  std::vector<std::string> set;      ///< quantizers whose range it gave
  std::vector<std::string> missing;  ///< quantizers that still have no range and need one
  std::vector<std::string> unused;   ///< keys of ranges and factors that no quantizer takes
};

/// Sets amax and pre_quant_scale of a quantized model's quantizers to those of a state dict of ModelOpt or
/// pytorch-quantization as safetensors: `<module>.input_quantizer._amax`, `._pre_quant_scale`,
/// `<module>._input_quantizer._amax`, .. of F32, F16, BF16 or F64, in any shape with the right number of
/// elements, row-major. Quantizers are found by their path. One that several modules share takes the value
/// under its own name, else the largest of its aliases'; factors must be the same under all of its names. A
/// quantizer that is off, takes its ranges from each input or was given amax by its config takes no range.
/// Other tensors of the file are not read.
///
/// Throws FileError naming file, key and quantizer: a number of elements that is not that of the quantizer's
/// ranges, values that are negative (of factors: not positive) or not finite, factors of a quantizer that is
/// off, two spellings of one name, another type; and as SafetensorsFile. Then nothing was changed.
[[nodiscard]] ImportedRanges import_ranges(Module& model, const std::string& path);

}  // namespace fq
