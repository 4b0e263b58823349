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

/// How a quantizer computes.
///
/// - `deployed`: scale = amax / bound, codes, clipped gradient: what the engine computes, and what layers
///   multiply.
/// - `reference`: ModelOpt's arithmetic on floats of any type, whose gradient passes through; for comparing
///   with it bit by bit.
enum class Arithmetic { deployed, reference };

/// How an engine keeps a weight, where that is more than its descriptor says.
///
/// - `q4_0`, `q8_0`: ggml's blocks of 32 with f16 steps, rounded as its files are; ranges are those of the
///   weight, and gradients pass everywhere.
/// - `bf16_scales`: scales are rounded to bf16 (XNNPACK's weights of 4 bits).
enum class EngineGrid : unsigned char { none, q4_0, q8_0, bf16_scales };

/// All parameters of a TensorQuantizer except its range and its observer. This is a plain value: `set_params`
/// and `update` of a quantizer check it.
struct QuantParams {
  /// Path of the quantizer in messages and files: "conv1.input_quantizer".
  std::string name;
  QuantDescriptor descriptor;
  /// Formulas of the quantizer. The range stays when this changes.
  Arithmetic arithmetic = Arithmetic::deployed;

  /// Three switches that do not depend on each other.
  bool enabled = true;     ///< else the input passes, behind its pre_quant_scale
  bool observing = false;  ///< the observer sees the input
  bool quantizing = true;  ///< the output is on the grid

  /// Each training forward sets amax += momentum * (amax of the input - amax), then quantizes by it. Not for
  /// quantizers that take their ranges from each input or learn them: there it stays off.
  bool running = false;
  double momentum = 0.01;  ///< above 0, at most 1
  /// How a range with the descriptor's `learn_amax` is trained; only `clip` in `reference`.
  AmaxGradient amax_gradient = AmaxGradient::clip;
  /// Whether the gradient of the input is that of the output everywhere, also outside of the range. Unless
  /// set: in `reference`, as ModelOpt.
  std::optional<bool> pass_through_bwd;

  /// The storage offset of exported codes, 0 or 128: a file stores code + offset.
  int zero_point = 0;
  /// Whether scales are raised to powers of two, so that engines can shift; the range is raised with them.
  bool pow2 = false;
  /// Calibration makes it unsigned when every value collected was 0 or more (target `ort`).
  bool may_become_unsigned = false;
  /// Of a weight: how the target's engine keeps it. `quantize` sets it; only in `deployed`.
  EngineGrid engine_grid = EngineGrid::none;
  /// Of a weight: each is -a or +a by its sign (0 is +a), a the mean magnitude of its channel in every step,
  /// and every gradient passes (XNOR-Net, Rastegari et al. 2016; the gradient of DoReFa-Net, Zhou et al.
  /// 2016). A channel whose mean is at most 2^-24 has codes of 0. Only in `deployed`, with a dynamic
  /// descriptor of narrow integers of 2 bits without blocks, of one axis at most.
  bool binary = false;
  /// Multiplies the input before it is observed and quantized (SmoothQuant, AWQ), also while not enabled;
  /// undefined for none. On the device of the quantizer.
  Tensor pre_quant_scale;

  /// Whether the gradient passes everywhere, with the default of the arithmetic where nothing is set.
  [[nodiscard]] bool passes_through() const noexcept {
    const bool always = binary || engine_grid == EngineGrid::q4_0 || engine_grid == EngineGrid::q8_0;
    return always || pass_through_bwd.value_or(arithmetic == Arithmetic::reference);
  }
  /// Whether it has one amax, which is not a parameter: what `running` can move.
  [[nodiscard]] bool has_fixed_range() const { return descriptor.needs_amax() && !descriptor.learn_amax(); }
};

/// Throws ArgumentError naming the quantizer: for a momentum out of range, scale_bits 8 (only packed tensors
/// keep scales so), learn_amax per axis or by lsq in `reference`, `binary` with what it does not go with.
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
