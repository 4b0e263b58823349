#pragma once

/// Weights in ggml's blocks: their rounding, and the choice of their steps.

#include <string>
#include <vector>

#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"

namespace fq::detail {

/// Blocks of 32 with f16 steps, which may be negative, by the rule of Q4_0 or Q8_0 (reference/ggml.h).
/// Weights are [N, K]. Each call takes the ranges from the weight, and gradients pass everywhere.
class GgmlScheme final : public WeightScheme {
 public:
  explicit GgmlScheme(GgmlRounding rounding) noexcept;
  [[nodiscard]] GgmlRounding rounding() const noexcept { return rounding_; }

  [[nodiscard]] bool uses_range() const noexcept override { return false; }
  [[nodiscard]] QuantizedTensor quantize(const Variable& w, const WeightState& state,
                                         bool with_mask) const override;
  void check_packing(const std::string& quantizer) const override;

 private:
  GgmlRounding rounding_;
};

/// Returns the scheme of Q4_0 or Q8_0.
[[nodiscard]] const GgmlScheme& ggml_weights(GgmlRounding rounding) noexcept;
/// Returns the scheme of a quantizer of weights in ggml's blocks, null for another.
[[nodiscard]] const GgmlScheme* ggml_scheme(const QuantParams& params) noexcept;

/// Returns the code of the number of the largest magnitude in each block, for a weight [N, K] on the host:
/// f32 [N, K / 32]. Undefined if all codes are llama.cpp's (-8 of Q4_0, 127 of Q8_0).
///
/// Blocks on a lattice of the format get the code that keeps the lattice. For other blocks `mse` and
/// `mse_search` choose the step with the least squared error, and `max` chooses llama.cpp's step. Throws
/// ArgumentError for another method.
[[nodiscard]] Tensor fitted_extreme_codes(const Tensor& w, GgmlRounding rounding, const std::string& method);

/// Returns the codes of the largest numbers of blocks, so that a weight keeps the codes [N, K] of a file.
/// Both tensors are f32 on the host.
[[nodiscard]] Tensor file_extreme_codes(const Tensor& w, const Tensor& codes, GgmlRounding rounding);

/// Sets these codes for every weight in ggml's blocks, by the calib_method of its quantizer. With
/// `keep_known`, weights that already have codes are skipped. Training, files and llama.cpp keep the codes.
/// Returns a warning for each weight with steps that are 0 in float16.
std::vector<std::string> fit_ggml_weights(Module& model, bool keep_known = false);

}  // namespace fq::detail
