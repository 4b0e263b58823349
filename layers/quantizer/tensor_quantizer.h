#pragma once

/// TensorQuantizer: quantizes a tensor and tracks its range.
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

/// Quantizes a tensor by its QuantParams. It has a range (amax and its updates), an observer (collects
/// inputs), a cache of grids and the codes of a weight.
///
/// Three switches are independent: `enabled` (otherwise the input passes, after its pre_quant_scale),
/// `observing` (the observer collects the input) and `quantizing`. With the descriptor's `learn_amax`, amax
/// is the parameter "amax" as soon as it is known, so make optimizers after that. Quantizing without amax
/// throws ArgumentError naming the quantizer, unless the descriptor needs none. Several readers of one tensor
/// may share a quantizer. Evaluation from several threads is safe. Empty inputs pass.
///
/// In `deployed`, each static block has scale = amax / bound. With scale_bits (4,3), the scale is e4m3(amax /
/// bound / g) * g, at least 2^-9 * g, with g = amax of the tensor / (448 * bound). With (8,0), it is the next
/// power of two. Dynamic blocks take amax from each input. The last block may have fewer elements. In
/// `reference`, blocks are padded and reshaped as in ModelOpt.
class TensorQuantizer : public Module {
 public:
  /// Makes a quantizer that is enabled, quantizes and does not observe.
  explicit TensorQuantizer(QuantDescriptor descriptor = {}, Arithmetic arithmetic = Arithmetic::deployed);
  /// Throws ArgumentError as `check` (layers/quantizer/quant_params.h).
  explicit TensorQuantizer(QuantParams params);
  ~TensorQuantizer() override;

  [[nodiscard]] std::string type() const override { return "tensor_quantizer"; }
  [[nodiscard]] std::string describe() const override;

  /// Returns the parameters. `set_params` and `update` change them.
  [[nodiscard]] const QuantParams& params() const noexcept { return params_; }
  /// Sets the parameters. If the descriptor changes, collected inputs are dropped, and amax becomes the amax
  /// of the descriptor. Without one, amax stays while axes and blocks stay the same. Throws ArgumentError as
  /// `check`, and then changes nothing.
  void set_params(QuantParams params);
  /// Changes some of the parameters:
  ///
  ///     quantizer.update([](QuantParams& params) { params.running = true; });
  void update(const std::function<void(QuantParams&)>& change);

  /// Path of the quantizer in messages and files. `quantize` sets it.
  [[nodiscard]] const std::string& name() const noexcept { return params_.name; }
  void set_name(std::string name);
  [[nodiscard]] const QuantDescriptor& descriptor() const noexcept { return params_.descriptor; }
  void set_descriptor(QuantDescriptor descriptor);

  /// The three switches. `enabled` is also false while the range is zero: a quantizer that has seen only
  /// zeros passes its input until training gives it a range (QuantizerRange).
  [[nodiscard]] bool enabled() const { return params_.enabled && !range_.is_zero(); }
  [[nodiscard]] bool observing() const noexcept { return params_.observing; }
  [[nodiscard]] bool quantizing() const noexcept { return params_.quantizing; }
  void set_enabled(bool on) noexcept { params_.enabled = on; }
  void set_observing(bool on) noexcept { params_.observing = on; }
  void set_quantizing(bool on) noexcept { params_.quantizing = on; }

  /// Returns the range. `amax` is its value.
  [[nodiscard]] const QuantizerRange& range() const noexcept { return range_; }
  /// Returns QuantizerRange::amax.
  [[nodiscard]] Tensor amax() const { return range_.amax(); }
  /// Sets the range in place of calibrating it. Throws ArgumentError for a negative, infinite or NaN value,
  /// or the wrong number of them: one, or one for each channel or block.
  void set_amax(const Tensor& amax);
  /// Sets the state of a range that grows: see QuantizerRange::growth.
  void set_growth(const RangeGrowth& growth);
  /// Sets larger ranges. A range that was zero keeps growing in training.
  void raise_amax(const Tensor& amax);

  /// Sets the range by the scales of a file: one, or one for each channel or block. `scale()` then returns
  /// these bits, and the range is fl(scale * bound). The scales are kept until amax is set, learned or moved,
  /// as not every scale is fl(amax / bound) of some amax. Only in `deployed`, without pow2, scale_amax and
  /// scale_bits. Throws ArgumentError as `set_amax`, and for a scale that is not positive and finite, or
  /// whose range is at most 2^-24 and not the floor of an empty range.
  void set_scale(const Tensor& scale);

  /// Returns the observer of inputs, to set a calibrator or to collect tensors.
  [[nodiscard]] RangeObserver& observer() noexcept { return observer_; }
  [[nodiscard]] const RangeObserver& observer() const noexcept { return observer_; }
  /// Sets amax from the collected inputs by the given options. Throws ArgumentError if nothing was collected.
  void load_calibrated_amax(const AmaxOptions& options = {});
  /// Sets a range that `observer().range()` returned. Codes become unsigned if the range is unsigned and the
  /// parameters allow it.
  void set_calibrated_range(const CalibratedRange& range);

  /// Returns format, amax and scales of the range. Throws ArgumentError without amax, and if each input has
  /// its own range.
  [[nodiscard]] Grid grid() const;
  /// Returns Grid::scale of `grid`.
  [[nodiscard]] Tensor scale() const { return grid().scale; }
  /// Returns quantized values of a tensor as floats, independent of the switches and without pre_quant_scale.
  /// Records nothing.
  [[nodiscard]] Tensor quantized_values(const Tensor& x) const;

  /// Quantizes a parameter. The codes are kept until the parameter or the grid changes, so evaluation
  /// quantizes a weight once. For a parameter that holds codes (layers/quantizer/compress.h), returns these
  /// codes without a mask, or their values while the quantizer is off.
  virtual Variable weight(const Variable& w);
  /// Returns the cached codes of the weight, for the functions of layers/quantizer/compress.h.
  [[nodiscard]] WeightCodes& weight_codes() noexcept { return *weight_codes_; }
  [[nodiscard]] const WeightCodes& weight_codes() const noexcept { return *weight_codes_; }

  /// Drops cached grids and codes. Call it after writing to their memory. Setting amax or parameters drops
  /// them too.
  void forget();

  /// Writes parameters, amax, collected inputs and the scales of a packed weight under the prefix.
  void save(StateDict& state, const std::string& prefix) const;
  /// Reads them. Throws ArgumentError naming the quantizer for a damaged state.
  void load(const StateDict& state, const std::string& prefix);

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;
  void on_device_change(Device device) override;

 private:
  /// Whether a forward pass changes the range.
  [[nodiscard]] bool moves_range() const;
  [[nodiscard]] Variable quantize_moving(const Variable& x);
  [[nodiscard]] Variable packed_weight(const Variable& w) const;
  void range_changed();

  QuantParams params_;
  Device device_;  // of the module, which has no parameter but a learned range
  QuantizerRange range_{params_};
  RangeObserver observer_{params_};
  std::unique_ptr<detail::GridCache> grid_;
  std::unique_ptr<WeightCodes> weight_codes_;
  std::unique_ptr<detail::QuantizerArithmetic> arithmetic_;
};

/// Returns amax as ModelOpt's exporters write it. 0 becomes the bound of the format, and values are at least
/// the smallest normal number of their type. The shape is [1] per tensor, a list for one axis, and [..,
/// blocks] for blocks along the last axis. Undefined without amax. Throws ArgumentError for blocks without
/// the shape of the input. For an empty shape, amax keeps its shape.
[[nodiscard]] Tensor export_amax(const TensorQuantizer& quantizer, const Shape& input = {});

}  // namespace fq
