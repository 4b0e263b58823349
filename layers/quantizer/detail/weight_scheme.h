#pragma once

/// WeightScheme: how the engine of a target stores a weight, beyond the weight's descriptor.
///
///     params.weight_scheme = &binary_weights();  // codes -1 and 1
///     params.weight_scheme->name();              // "binary"

#include <string>
#include <string_view>

#include "fakequant/core/quantized.h"
#include "fakequant/layers/quantizer/quant_params.h"

namespace fq::detail {

class GridCache;

/// State of a quantizer that determines the codes of a weight.
struct WeightState {
  const QuantParams& params;
  const GridCache& grids;
  const Tensor& extreme_codes;  ///< WeightCodes::extreme_codes
};

/// A rounding rule for weights. Each rule is one immutable object, so rules compare by address.
class WeightScheme {
 public:
  explicit WeightScheme(std::string_view name) noexcept : name_(name) {}
  virtual ~WeightScheme() = default;
  WeightScheme(const WeightScheme&) = delete;
  WeightScheme& operator=(const WeightScheme&) = delete;

  /// Name in checkpoints: "none", "q4_0", "q8_0", "bf16_scales", "binary".
  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  /// Throws ArgumentError naming the quantizer for parameters that do not fit the scheme.
  virtual void check(const QuantParams& params) const;
  /// Whether codes are multiples of scales that follow from a range. Otherwise each call of `quantize` takes
  /// codes and scales from the values, and every gradient passes.
  [[nodiscard]] virtual bool uses_range() const noexcept { return true; }
  /// Returns the codes of the values of `w`. Throws ArgumentError for an unsupported shape and NumericError
  /// for a NaN or an infinity, both naming the quantizer.
  [[nodiscard]] virtual QuantizedTensor quantize(const Variable& w, const WeightState& state,
                                                 bool with_mask) const;
  /// Returns the scales (f32) as the engine's files store them.
  [[nodiscard]] virtual Tensor stored_scales(const Tensor& scales) const { return scales; }
  /// Returns one scale as the engine's files store it.
  [[nodiscard]] virtual float stored_scale(float scale) const { return scale; }
  /// Returns the weight nearest to `w` that has `code` on the symmetric grid of `amax` and `bound`.
  [[nodiscard]] virtual float weight_with_code(float w, float code, float amax, float bound) const;
  /// Whether files list scales although no range is known.
  [[nodiscard]] virtual bool has_scales_without_range() const noexcept { return false; }
  /// Throws ArgumentError naming `quantizer` if packed tensors cannot hold the codes and scales (compress.h).
  virtual void check_packing(const std::string& quantizer) const;

 private:
  std::string_view name_;
};

/// Returns the scheme of engines that store codes and scales as the descriptor says.
[[nodiscard]] const WeightScheme& plain_weights() noexcept;
/// Returns the scheme of weights -a and +a by their signs (0 becomes +a). `a` is the mean magnitude of the
/// channel in each step, and every gradient passes (XNOR-Net, Rastegari et al. 2016; the gradient of
/// DoReFa-Net, Zhou et al. 2016). A channel whose mean is at most 2^-24 has codes of 0. It requires
/// arithmetic `deployed` and a dynamic descriptor of narrow integers of 2 bits, without blocks and with one
/// axis at most.
[[nodiscard]] const WeightScheme& binary_weights() noexcept;
/// Returns the scheme of scales rounded to bf16 (XNNPACK's weights of 4 bits).
[[nodiscard]] const WeightScheme& bf16_scale_weights() noexcept;

/// Returns the scheme of a name in checkpoints except "binary". Throws ArgumentError for an unknown name.
[[nodiscard]] const WeightScheme& weight_scheme_named(std::string_view name);

}  // namespace fq::detail
