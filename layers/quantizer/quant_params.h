#pragma once

/// QuantParams: how one quantizer quantizes, resolved from a config (layers/config/quant_config.h).
///
///     quantizer.update([](QuantParams& params) {  // TensorQuantizer::update checks the result
///       params.running = true;
///       params.momentum = 0.1;
///     });

#include <optional>
#include <string>
#include <string_view>

#include "fakequant/core/descriptor.h"
#include "fakequant/core/ops/quantize.h"

namespace fq {

class StateDict;

/// Arithmetic of a quantizer.
///
/// - `deployed`: scale = amax / bound, codes, clipped gradient. The engine computes the same, and layers
///   multiply the codes.
/// - `reference`: ModelOpt's arithmetic on floats of any type, whose gradient passes through. It is for
///   comparison with ModelOpt bit by bit.
enum class Arithmetic { deployed, reference };

namespace detail {
class WeightScheme;
/// Returns the scheme of engines that store codes and scales as the descriptor says.
[[nodiscard]] const WeightScheme& plain_weights() noexcept;
}  // namespace detail

/// All parameters of a TensorQuantizer except its range and its observer. This is a plain value: `set_params`
/// and `update` of a quantizer check it.
struct QuantParams {
  /// Path of the quantizer in messages and files: "conv1.input_quantizer".
  std::string name;
  QuantDescriptor descriptor;
  /// Formulas of the quantizer. The range stays when this changes.
  Arithmetic arithmetic = Arithmetic::deployed;

  /// Three switches that do not depend on each other.
  bool enabled = true;     ///< if false, only pre_quant_scale is applied
  bool observing = false;  ///< the observer sees the input
  bool quantizing = true;  ///< the output is on the grid

  /// Whether each training forward first sets amax += momentum * (amax of the input - amax), then quantizes
  /// by it. It stays off for quantizers that take their ranges from each input or learn them.
  bool running = false;
  double momentum = 0.01;  ///< above 0, at most 1
  /// Gradient of a range with the descriptor's `learn_amax`. `reference` supports only `clip`.
  AmaxGradient amax_gradient = AmaxGradient::clip;
  /// Whether the gradient of the input equals the gradient of the output everywhere, also outside of the
  /// range. By default true in `reference`, as in ModelOpt, and false in `deployed`.
  std::optional<bool> pass_through_bwd;

  /// The storage offset of exported codes, 0 or 128: a file stores code + offset.
  int zero_point = 0;
  /// Whether scales are raised to powers of two, so that engines can shift; the range is raised with them.
  bool pow2 = false;
  /// Whether calibration makes the codes unsigned if every collected value is 0 or more (target `ort`).
  bool may_become_unsigned = false;
  /// Storage of a weight in the target's engine (layers/quantizer/detail/weight_scheme.h), never null.
  /// `quantize` sets it. Schemes other than the plain one require arithmetic `deployed`.
  const detail::WeightScheme* weight_scheme = &detail::plain_weights();
  /// Factor that multiplies the input before it is observed and quantized (SmoothQuant, AWQ), even if the
  /// quantizer is disabled. Undefined for none. On the device of the quantizer.
  Tensor pre_quant_scale;

  /// Whether the gradient passes everywhere: by the weight scheme, `pass_through_bwd`, or the default.
  [[nodiscard]] bool passes_through() const noexcept;
  /// Whether amax is needed and is not a parameter, so that `running` can move it.
  [[nodiscard]] bool has_fixed_range() const { return descriptor.needs_amax() && !descriptor.learn_amax(); }
};

/// Throws ArgumentError naming the quantizer for a momentum out of range, and for scale_bits 8, which only
/// packed tensors support. Also throws it for learn_amax per axis or by lsq in `reference`, and for
/// parameters that the weight scheme does not support.
void check(const QuantParams& params);

namespace detail {

/// Writes all parameters except the name to a checkpoint, under the prefix.
void save_params(const QuantParams& params, StateDict& state, const std::string& prefix);
/// Reads them. Throws ArgumentError naming the quantizer if they are damaged.
[[nodiscard]] QuantParams load_params(std::string name, const StateDict& state, const std::string& prefix);

/// Returns "clip" or "lsq".
[[nodiscard]] std::string_view amax_gradient_name(AmaxGradient gradient) noexcept;
/// Throws ArgumentError for another name.
[[nodiscard]] AmaxGradient amax_gradient_from_name(std::string_view name);

}  // namespace detail
}  // namespace fq
