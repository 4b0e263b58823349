#pragma once

/// The steps of weights in ggml's blocks.

#include <string>
#include <vector>

#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/quantizer/quant_params.h"

namespace fq::detail {

/// The code of each block's number of the largest magnitude, for a weight [N, K] on the host: f32 [N, K /
/// 32], or undefined where all are llama.cpp's (-8 of Q4_0, 127 of Q8_0).
///
/// Blocks on a lattice of the format get the code that keeps it. Of the others `mse` and `mse_search` choose
/// the step with the least squared error, `max` llama.cpp's. Throws ArgumentError for another method.
[[nodiscard]] Tensor fitted_extreme_codes(const Tensor& w, EngineGrid grid, const std::string& method);

/// Returns the codes of the largest numbers by which a weight keeps the codes [N, K] of its file. Both
/// tensors are f32 on the host.
[[nodiscard]] Tensor file_extreme_codes(const Tensor& w, const Tensor& codes, EngineGrid grid);

/// Chooses these codes for every weight in ggml's blocks by the calib_method of its quantizer; with
/// `keep_known` not for those that have some. Training, files and llama.cpp keep them. Returns a warning for
/// each weight with steps that are 0 in float16.
std::vector<std::string> fit_ggml_weights(Module& model, bool keep_known = false);

}  // namespace fq::detail
