#pragma once

/// TensorQuantizer: the layer that watches a tensor and puts it on a grid.
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

/// Driven by its settings, first of all a QuantDescriptor, and made of pieces: a range (amax and how it
/// moves), an observer (what was seen), a grid (format and range made into scales) and the codes of a weight.
///
/// Three switches of the settings are independent: `enabled` (else the input passes, behind its
/// pre_quant_scale), `observing` (the observer sees the input) and `quantizing`. With the descriptor's
/// `learn_amax`, amax is the parameter "amax", from the moment it is given or calibrated: make optimizers
/// after that. Quantizing without amax throws ArgumentError naming the quantizer, unless the descriptor needs
/// none. One quantizer may serve several readers of one tensor; evaluation from several threads is safe.
/// Empty inputs pass.
///
/// In `deployed` static blocks have scale = amax / bound each; with scale_bits (4,3) the scale is e4m3(that /
/// g) * g, at least 2^-9 * g, g = amax of the tensor / (448 * bound); with (8,0) it is the power of two at or
/// above. Dynamic blocks take amax from each input. A last partial block is one of fewer elements. In
/// `reference` blocks are padded and reshaped as ModelOpt does.
class TensorQuantizer : public Module {
 public:
  /// A quantizer of that descriptor, which is enabled, quantizes and observes nothing.
  explicit TensorQuantizer(QuantDescriptor descriptor = {}, Arithmetic arithmetic = Arithmetic::deployed);
  /// By all of its settings. Throws ArgumentError as `check` (layers/quantizer/quant_params.h).
  explicit TensorQuantizer(QuantParams params);
  ~TensorQuantizer() override;

  [[nodiscard]] std::string type() const override { return "tensor_quantizer"; }
  [[nodiscard]] std::string describe() const override;

  /// What it is told; another value is given by the functions below, which check it.
  [[nodiscard]] const QuantParams& params() const noexcept { return params_; }
  /// Gives other settings. Another descriptor sets amax if it has one, else amax stays while axes and blocks
  /// stay the same; and what was collected is forgotten. Throws ArgumentError as `check`; then nothing
  /// changed.
  void set_params(QuantParams params);
  /// The same for some of the settings:
  ///
  ///     quantizer.update([](QuantParams& s) { s.running = true; });
  void update(const std::function<void(QuantParams&)>& change);

  /// The path under which messages and files know it; `quantize` sets it.
  [[nodiscard]] const std::string& name() const noexcept { return params_.name; }
  void set_name(std::string name);
  [[nodiscard]] const QuantDescriptor& descriptor() const noexcept { return params_.descriptor; }
  void set_descriptor(QuantDescriptor descriptor);

  /// The three switches. `enabled` is false, too, while the range is zero: a quantizer that has seen only
  /// zeros passes its input. Training gives it a range (QuantizerRange).
  [[nodiscard]] bool enabled() const { return params_.enabled && !range_.is_zero(); }
  [[nodiscard]] bool observing() const noexcept { return params_.observing; }
  [[nodiscard]] bool quantizing() const noexcept { return params_.quantizing; }
  void set_enabled(bool on) noexcept { params_.enabled = on; }
  void set_observing(bool on) noexcept { params_.observing = on; }
  void set_quantizing(bool on) noexcept { params_.quantizing = on; }

  /// The range in force; `amax` is its value.
  [[nodiscard]] const QuantizerRange& range() const noexcept { return range_; }
  /// The range in force: see QuantizerRange::amax.
  [[nodiscard]] Tensor amax() const { return range_.amax(); }
  /// Sets the range in place of calibrating it. Throws ArgumentError for a negative, infinite or NaN value,
  /// or the wrong number of them: one, or one for each channel or block.
  void set_amax(const Tensor& amax);
  /// Sets the state of a range that grows: see QuantizerRange::growth.
  void set_growth(const RangeGrowth& growth);
  /// Sets larger ranges. A range that was zero keeps growing in training.
  void raise_amax(const Tensor& amax);

  /// Sets the range by the steps that a file has, one or one for each channel or block: `scale()` then gives
  /// just these. The range is fl(scale * bound) of them; not every step is fl(amax / bound) of some amax,
  /// which is why they are kept beside it, until amax is set, learned or moved. Only in `deployed`, without
  /// pow2, scale_amax and scale_bits. Throws ArgumentError for a step that is not positive and finite, or
  /// whose range is at most 2^-24 and not the floor that stands for none, and as `set_amax`.
  void set_scale(const Tensor& scale);

  /// What watches its inputs, to set a calibrator or to collect by hand.
  [[nodiscard]] RangeObserver& observer() noexcept { return observer_; }
  [[nodiscard]] const RangeObserver& observer() const noexcept { return observer_; }
  /// Sets amax to what the observer has collected; `options` choose how it is read. Throws ArgumentError when
  /// it has seen nothing.
  void load_calibrated_amax(const AmaxOptions& options = {});
  /// The same with a range of `observer().range()`, for whoever wants to know all ranges before setting one.
  /// Codes become unsigned where the range says so and the settings allow it.
  void set_calibrated_range(const CalibratedRange& range);

  /// The grid in force: format, amax, scale. Throws ArgumentError without amax, and where each input has its
  /// own.
  [[nodiscard]] Grid grid() const;
  /// The scales of that grid, as Grid has them.
  [[nodiscard]] Tensor scale() const { return grid().scale; }
  /// What quantizing makes of a tensor as floats, whatever the switches say; pre_quant_scale is not applied,
  /// nothing is recorded.
  [[nodiscard]] Tensor quantized_values(const Tensor& x) const;

  /// Quantizes a parameter; the codes are kept until the parameter or the grid changes, so that evaluation
  /// quantizes a weight once. A parameter that holds codes (layers/quantizer/compress.h) gives those,
  /// unpacked for this call, or their values while this is off; without a mask.
  virtual Variable weight(const Variable& w);
  /// What is kept of the weight, for the functions of layers/quantizer/compress.h.
  [[nodiscard]] WeightCodes& weight_codes() noexcept { return *weight_codes_; }
  [[nodiscard]] const WeightCodes& weight_codes() const noexcept { return *weight_codes_; }

  /// Makes grid and codes anew at the next use. It is for who wrote to the memory that they are in; setting
  /// amax or settings does it by itself.
  void forget();

  /// Puts settings, amax, what the calibrator has collected and the scales of a packed weight under the
  /// prefix.
  void save(StateDict& state, const std::string& prefix) const;
  /// Takes them back. Throws ArgumentError naming the quantizer for what is not such a state.
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

/// amax as the reference's exporters want it: 0 becomes the bound of the format, at least the smallest normal
/// number of its type; per tensor it is [1], for one axis a list, for blocks along the last axis [..,
/// blocks]. It is undefined without amax. Blocks need the shape of the input (amax stays as it is where that
/// is empty), else ArgumentError.
[[nodiscard]] Tensor export_amax(const TensorQuantizer& quantizer, const Shape& input = {});

}  // namespace fq
