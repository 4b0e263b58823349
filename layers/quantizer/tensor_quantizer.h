#pragma once

/// TensorQuantizer: the layer that observes a tensor and quantizes it.
///
///     TensorQuantizer q(QuantDescriptor({.num_bits = 8}));
///     q.observer().collect(x);
///     q.load_calibrated_amax();
///     Variable y = q(x);  // y.quantized()->codes, y.tensor()
///
/// `quantize` (layers/quantize.h) makes one for each tensor of a network.

#include <functional>
#include <memory>
#include <string>

#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/quantizer/observer.h"
#include "fakequant/layers/quantizer/range.h"

namespace fq {

class WeightCodes;
namespace detail {
class QuantizerArithmetic;
class GridCache;
}  // namespace detail

/// A quantizer computes by its QuantParams, first of all by their QuantDescriptor. It consists of a range
/// (amax and its changes), an observer (data for calibration), a grid (scales from format and range) and the
/// codes of a weight.
///
/// Three switches are independent: `enabled` (if false, only pre_quant_scale is applied), `observing` (the
/// observer sees the input) and `quantizing`. With the descriptor's `learn_amax`, amax becomes the parameter
/// "amax" when it is given or calibrated: make optimizers after that. Quantizing without amax throws
/// ArgumentError naming the quantizer, unless the descriptor needs no amax. One quantizer may serve several
/// readers of one tensor. Evaluation from several threads is safe. Empty inputs pass unchanged.
///
/// In `deployed` each static block has scale = amax / bound. With scale_bits (4,3) the scale is e4m3(amax /
/// bound / g) * g, at least 2^-9 * g, g = amax of the tensor / (448 * bound). With (8,0) it is the power of
/// two at or above amax / bound. Dynamic blocks take amax from each input. A last partial block has fewer
/// elements. In `reference` blocks are padded and reshaped as in ModelOpt.
class TensorQuantizer : public Module {
 public:
  /// Makes a quantizer of that descriptor. It is enabled, quantizes and does not observe.
  explicit TensorQuantizer(QuantDescriptor descriptor = {}, Arithmetic arithmetic = Arithmetic::deployed);
  /// Makes a quantizer from all parameters. Throws ArgumentError as `check`
  /// (layers/quantizer/quant_params.h).
  explicit TensorQuantizer(QuantParams params);
  ~TensorQuantizer() override;

  [[nodiscard]] std::string type() const override { return "tensor_quantizer"; }
  [[nodiscard]] std::string describe() const override;

  /// Returns the parameters. The functions below check and change them.
  [[nodiscard]] const QuantParams& params() const noexcept { return params_; }
  /// Sets the parameters. A new descriptor sets amax if it has one; otherwise amax stays while axes and
  /// blocks stay the same. A new descriptor also drops the collected data. Throws ArgumentError as `check`;
  /// then nothing changes.
  void set_params(QuantParams params);
  /// Changes some of the parameters:
  ///
  ///     quantizer.update([](QuantParams& params) { params.running = true; });
  void update(const std::function<void(QuantParams&)>& change);

  /// Returns the path of the quantizer in messages and files; `quantize` sets it.
  [[nodiscard]] const std::string& name() const noexcept { return params_.name; }
  void set_name(std::string name);
  [[nodiscard]] const QuantDescriptor& descriptor() const noexcept { return params_.descriptor; }
  void set_descriptor(QuantDescriptor descriptor);

  /// The three switches. `enabled` is also false while the range is zero: a quantizer that has seen only
  /// zeros passes its input. Training gives it a range (QuantizerRange).
  [[nodiscard]] bool enabled() const { return params_.enabled && !range_.is_zero(); }
  [[nodiscard]] bool observing() const noexcept { return params_.observing; }
  [[nodiscard]] bool quantizing() const noexcept { return params_.quantizing; }
  void set_enabled(bool on) noexcept { params_.enabled = on; }
  void set_observing(bool on) noexcept { params_.observing = on; }
  void set_quantizing(bool on) noexcept { params_.quantizing = on; }

  /// Returns the current range; `amax` is its value.
  [[nodiscard]] const QuantizerRange& range() const noexcept { return range_; }
  /// Returns the current amax: see QuantizerRange::amax.
  [[nodiscard]] Tensor amax() const { return range_.amax(); }
  /// Sets the range, without calibration. Throws ArgumentError for a negative, infinite or NaN value, or a
  /// wrong number of values: one, or one for each channel or block.
  void set_amax(const Tensor& amax);
  /// Sets ranges and growth flags: see QuantizerRange::growth.
  void set_growth(const RangeGrowth& growth);
  /// Sets larger ranges. A range that was zero keeps growing in training.
  void raise_amax(const Tensor& amax);

  /// Sets the range from the steps in a file: one step, or one for each channel or block. `scale()` then
  /// returns exactly these steps. The range is fl(scale * bound). Not every step is fl(amax / bound) for some
  /// amax, so the steps are stored too, until amax is set, learned or moved. Only in `deployed`, without
  /// pow2, scale_amax and scale_bits.
  ///
  /// Throws ArgumentError for a step that is not positive and finite, and as `set_amax`. Also throws it for a
  /// step whose range is at most 2^-24, except the step that a grid has for a zero range.
  void set_scale(const Tensor& scale);

  /// Returns the observer, to set a calibrator or to collect data.
  [[nodiscard]] RangeObserver& observer() noexcept { return observer_; }
  [[nodiscard]] const RangeObserver& observer() const noexcept { return observer_; }
  /// Sets amax from the data of the observer. `options` choose how amax is computed. Throws ArgumentError if
  /// the observer has no data.
  void load_calibrated_amax(const AmaxOptions& options = {});
  /// Sets amax from `observer().range()`, so that a caller can compute all ranges before setting one. Codes
  /// become unsigned if the range is unsigned and the parameters allow it.
  void set_calibrated_range(const CalibratedRange& range);

  /// Returns the current grid: format, amax, scale. Throws ArgumentError without amax, and if each input has
  /// its own grid.
  [[nodiscard]] Grid grid() const;
  /// Returns the scales of the current grid, as in Grid.
  [[nodiscard]] Tensor scale() const { return grid().scale; }
  /// Quantizes a tensor regardless of the switches, and returns the values as floats. pre_quant_scale is not
  /// applied, and no gradient is recorded.
  [[nodiscard]] Tensor quantized_values(const Tensor& x) const;

  /// Whether calls leave the quantizer unchanged: it does not observe, and its range does not move.
  [[nodiscard]] bool is_constant() const { return !observing() && !moves_range(); }
  /// Whether `weight` returns codes of w that stay cached until w or the grid changes.
  [[nodiscard]] virtual bool keeps_weight(const Variable& w) const;
  /// Quantizes a parameter. Its codes stay cached until the parameter or the grid changes, so evaluation
  /// quantizes a weight once. For a parameter that holds codes (layers/quantizer/compress.h), returns these
  /// codes, unpacked for this call, or their values while this quantizer is disabled. They have no mask.
  virtual Variable weight(const Variable& w);
  /// Returns the codes and scales of the weight, for the functions of layers/quantizer/compress.h.
  [[nodiscard]] WeightCodes& weight_codes() noexcept { return *weight_codes_; }
  [[nodiscard]] const WeightCodes& weight_codes() const noexcept { return *weight_codes_; }

  /// Recomputes grid and codes at the next use. Call it after writing to the memory of amax directly. Setting
  /// amax or parameters calls it automatically.
  void forget();

  /// Writes parameters, amax, the collected data and the scales of a packed weight under the prefix.
  void save(StateDict& state, const std::string& prefix) const;
  /// Restores this state. Throws ArgumentError naming the quantizer if the state is damaged.
  void load(const StateDict& state, const std::string& prefix);

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;
  void handle_device_change(Device device) override;

 private:
  /// Whether a forward pass changes the range.
  [[nodiscard]] bool moves_range() const;
  [[nodiscard]] Variable quantize_moving(const Variable& x);
  [[nodiscard]] Variable packed_weight(const Variable& w) const;
  void range_changed();

  QuantParams params_;
  Device device_;  // of the module; a learned range is its only parameter
  QuantizerRange range_{params_};
  RangeObserver observer_{params_};
  std::unique_ptr<detail::GridCache> grid_;
  std::unique_ptr<WeightCodes> weight_codes_;
  std::unique_ptr<detail::QuantizerArithmetic> arithmetic_;
};

/// Returns amax in the form of the reference's exporters. A range of 0 becomes the bound of the format, and
/// others are at least the smallest normal number of the type. Per tensor the shape is [1], for one axis a
/// list, for blocks along the last axis [.., blocks]. The result is undefined without amax.
///
/// Blocks need `input`, the shape of the input, else ArgumentError. If the input has no elements, amax keeps
/// its shape.
[[nodiscard]] Tensor export_amax(const TensorQuantizer& quantizer, const Shape& input = {});

}  // namespace fq
