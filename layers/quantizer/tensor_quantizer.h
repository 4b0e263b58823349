#pragma once

/// TensorQuantizer: the layer that watches a tensor and puts it on a grid.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/packed_scales.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// `deployed`: scale = amax / bound, codes, clipped gradient: what the engine computes. `reference`:
/// ModelOpt's arithmetic on floats of any type, whose gradient passes through.
enum class Arithmetic { deployed, reference };

/// What calibration found for a quantizer.
struct CalibratedRange {
  Tensor amax;
  bool is_unsigned = false;  ///< of the codes that hold it
};

/// Driven by a QuantDescriptor. Three independent switches: `enabled` (else the input passes, behind its
/// pre_quant_scale), `observing` (the calibrator collects the input) and `quantizing`. In `running` mode a
/// training forward moves amax towards that of its input before it quantizes by it. With the descriptor's
/// `learn_amax`, amax is the parameter "amax", from the moment it is given or calibrated: make optimizers
/// after that. Quantizing without amax throws ArgumentError naming the quantizer, unless the descriptor needs
/// none. One quantizer may serve several readers of one tensor; evaluation from several threads is safe.
/// Empty inputs pass.
///
/// Blocks: in `deployed` static ones have scale = amax / bound each; with scale_bits (4,3) the scale is
/// e4m3(that / g) * g, at least 2^-9 * g, g = amax of the tensor / (448 * bound); with (8,0) it is the power
/// of two at or above. Dynamic ones take amax from each input. A last partial block is one of fewer elements.
/// In `reference` they are padded and reshaped as ModelOpt does.
class TensorQuantizer : public Module {
 public:
  explicit TensorQuantizer(QuantDescriptor descriptor = {}, Arithmetic arithmetic = Arithmetic::deployed);

  [[nodiscard]] std::string type() const override { return "tensor_quantizer"; }
  [[nodiscard]] std::string describe() const override;

  /// The path under which messages and files know it: "conv1.input_quantizer".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  void set_name(std::string name);
  [[nodiscard]] const QuantDescriptor& descriptor() const noexcept { return descriptor_; }
  /// Keeps amax when axes and blocks stay the same. Throws ArgumentError for learn_amax per axis in
  /// `reference`, and for scale_bits 8, which only packed tensors apply.
  void set_descriptor(QuantDescriptor descriptor);
  [[nodiscard]] Arithmetic arithmetic() const noexcept { return arithmetic_; }
  void set_arithmetic(Arithmetic arithmetic);

  [[nodiscard]] bool enabled() const noexcept { return enabled_; }
  [[nodiscard]] bool observing() const noexcept { return observing_; }
  [[nodiscard]] bool quantizing() const noexcept { return quantizing_; }
  [[nodiscard]] bool running() const noexcept { return running_; }
  void set_enabled(bool on) noexcept { enabled_ = on; }
  void set_observing(bool on) noexcept { observing_ = on; }
  void set_quantizing(bool on) noexcept { quantizing_ = on; }
  /// Each training forward sets amax += momentum * (amax of the input - amax). Not for dynamic quantizers.
  void set_running(bool on, double momentum = 0.01);

  /// On the host, but where it is learned on a GPU, or running moved it there; then steps to come write to
  /// it. Without `scale_amax`; undefined before calibration. In `deployed` f32, rank 0 for one range, else a
  /// list of them in row-major order; in `reference` of the shape and type that it was given or calibrated
  /// in: kept axes with 1 for the others, of blocks (blocks, 1) or that of the grid. For dynamic blocks, the
  /// range of the whole tensor.
  [[nodiscard]] Tensor amax() const { return learned_.defined() ? learned_.tensor() : amax_; }
  /// Throws ArgumentError for a negative, infinite or NaN value, or the wrong number of them.
  void set_amax(const Tensor& amax);
  /// amax as the reference's exporters want it: 0 becomes the bound of the format, at least the smallest
  /// normal number of its type; per tensor [1], one axis a list, blocks along the last axis [.., blocks].
  /// Blocks need the shape of the input (amax stays as it is where that is empty). Undefined without amax.
  [[nodiscard]] Tensor export_amax(const Shape& input = {}) const;
  /// The parameter of learn_amax; undefined without it, and before amax is known.
  [[nodiscard]] const Variable& learned_amax() const noexcept { return learned_; }
  /// How that parameter is trained; only `clip` in `reference`.
  [[nodiscard]] AmaxGradient amax_gradient() const noexcept { return amax_gradient_; }
  void set_amax_gradient(AmaxGradient gradient);
  /// Whether the gradient of the input is that of the output everywhere, also outside of the range. Unless
  /// set: in `reference`, as ModelOpt.
  [[nodiscard]] bool pass_through_bwd() const noexcept;
  void set_pass_through_bwd(std::optional<bool> on);

  /// Sets amax to what the calibrator has collected. Throws ArgumentError when it has seen nothing.
  void load_calibrated_amax(const AmaxOptions& options = {});
  /// The same in two steps, for whoever wants all ranges before setting one. Bits and sign of `options` are
  /// those of the descriptor.
  [[nodiscard]] CalibratedRange calibrated_range(AmaxOptions options = {}) const;
  void set_calibrated_range(const CalibratedRange& range);
  /// Made by the descriptor's calib_method, until one is set.
  [[nodiscard]] Calibrator& calibrator();
  /// One of a user's own, or one with options that the descriptor has not. It stays until the descriptor
  /// changes; checkpoints keep its state when its method is that of the descriptor. Not null.
  void set_calibrator(std::unique_ptr<Calibrator> calibrator);
  /// What `observing` shows tensors to in place of the calibrator; an empty one gives them to the calibrator
  /// again.
  void set_observer(std::function<void(const Variable&)> observer) { observer_ = std::move(observer); }
  /// Shows the calibrator a tensor. Throws NumericError naming the quantizer for NaN and infinity.
  void collect(const Tensor& x);
  /// The smallest value collected; unknown before.
  [[nodiscard]] std::optional<float> observed_minimum() const;
  /// What quantizing makes of a tensor as floats, whatever the switches; pre_quant_scale is not applied.
  [[nodiscard]] Tensor quantized_values(const Tensor& x);
  /// The grid in force: format, amax, scale. Throws ArgumentError without amax, and where each input has its
  /// own.
  [[nodiscard]] QuantSpec spec() const;
  [[nodiscard]] Tensor scale() const { return spec().scale; }

  /// Storage offset of exported codes, 0 or 128, and whether scales are raised to powers of two.
  void set_storage(int zero_point, bool pow2);
  [[nodiscard]] int zero_point() const noexcept { return zero_point_; }
  [[nodiscard]] bool pow2() const noexcept { return pow2_; }
  /// Lets calibration make it unsigned when every value collected was 0 or more (target `ort`).
  void set_may_become_unsigned(bool on) noexcept { may_become_unsigned_ = on; }
  /// Multiplies the input before it is observed and quantized (SmoothQuant, AWQ), also while not enabled;
  /// undefined for none.
  void set_pre_quant_scale(Tensor scale);
  [[nodiscard]] const Tensor& pre_quant_scale() const noexcept { return pre_quant_scale_; }

  /// Quantizes a parameter; the codes are kept until the parameter or the grid changes. One that holds codes
  /// (compress.h) gives those, unpacked for this call, or their values while this is off; without a mask.
  virtual Variable weight(const Variable& w);
  /// What quantizing that parameter now would be; none where its codes are kept already, or never.
  [[nodiscard]] std::optional<QuantizeRequest> weight_request(const Variable& w) const;
  /// Keeps the codes that such a request gave, for the calls of `weight` to come.
  void keep_weight_codes(const Variable& w, QuantizedTensor codes);
  /// The codes of such a parameter. Throws ArgumentError when they are not in `packed_dtype` of the format,
  /// and when there is not a scale for each block.
  [[nodiscard]] QuantizedTensor unpack_weight(const Tensor& packed) const;
  /// The scales that such a parameter has of its own, where ranges come from each input; elsewhere none.
  [[nodiscard]] const PackedScales& weight_scales() const noexcept { return weight_scales_; }
  /// Throws ArgumentError as `check_scales`.
  void set_weight_scales(PackedScales scales);

  /// Descriptor, amax, switches, what the calibrator has collected and the scales of a packed weight, under
  /// the prefix.
  void save(StateDict& state, const std::string& prefix) const;
  void load(const StateDict& state, const std::string& prefix);
  /// What the calibrator has collected alone; nothing when its method is not that of the descriptor. Loading
  /// a state without it forgets what was collected. Throws ArgumentError naming the quantizer for one of
  /// another method and a damaged one; then nothing is collected.
  void save_calibrator(StateDict& state, const std::string& prefix) const;
  void load_calibrator(const StateDict& state, const std::string& prefix);
  /// Adds what such a state has collected (Calibrator::merge). Throws likewise, and where it cannot be added;
  /// then nothing changed.
  void merge_calibrator(const StateDict& state, const std::string& prefix);

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;
  void on_device_change(Device device) override;

 private:
  struct WeightCodes {
    const void* node = nullptr;
    std::uint64_t version = 0;
    std::optional<QuantizedTensor> codes;
  };

  [[nodiscard]] bool follows_inputs() const { return descriptor_.needs_amax() && !descriptor_.learn_amax(); }
  void move_amax(const Variable& x);
  void keep_amax(const Tensor& amax);
  void drop_amax();
  void load_amax(const Tensor& amax);
  void make_own_calibrator(const Axes& axes);
  [[nodiscard]] std::unique_ptr<Calibrator> saved_calibrator(const StateDict& state,
                                                             const std::string& prefix,
                                                             CalibratorOptions& options) const;
  void check_learning() const;
  [[nodiscard]] Tensor used_amax() const;
  [[nodiscard]] float global_amax(const Tensor& ranges) const;
  [[nodiscard]] Granularity granularity(int rank) const;
  [[nodiscard]] QuantSpec spec_of(const Tensor& amax, const Granularity& granularity) const;
  [[nodiscard]] QuantSpec dynamic_spec(const Tensor& x) const;
  [[nodiscard]] QuantSpec static_spec(int rank, Device device) const;
  [[nodiscard]] QuantSpec spec_for(const Variable& x) const;
  [[nodiscard]] Variable quantize(const Variable& x);
  [[nodiscard]] Variable quantize_running(const Variable& x);
  [[nodiscard]] Variable quantize_reference(const Variable& x) const;
  [[nodiscard]] Variable reference_values(const Variable& x, const Tensor& amax) const;
  [[nodiscard]] Variable reference_dynamic(const Variable& x) const;
  [[nodiscard]] bool keeps_weight_codes(const Variable& w) const;
  [[nodiscard]] bool wants_weight_mask(const Variable& w) const;
  [[nodiscard]] std::optional<QuantizedTensor> kept_weight_codes(const Variable& w) const;
  [[nodiscard]] QuantSpec packed_spec(int rank, Device device) const;
  [[nodiscard]] Variable packed_weight(const Variable& w) const;
  void save_weight_scales(StateDict& state, const std::string& prefix) const;
  void load_weight_scales(const StateDict& state, const std::string& prefix);
  void forget();

  QuantDescriptor descriptor_;
  Arithmetic arithmetic_;
  std::string name_;
  bool enabled_ = true, observing_ = false, quantizing_ = true, running_ = false, pow2_ = false;
  bool may_become_unsigned_ = false;
  std::optional<bool> pass_through_bwd_;
  AmaxGradient amax_gradient_ = AmaxGradient::clip;
  double momentum_ = 0.01;
  int zero_point_ = 0;
  Device device_;  // of the module, which has no parameter but a learned range
  Tensor amax_, pre_quant_scale_;
  PackedScales weight_scales_;
  Variable learned_;
  std::unique_ptr<Calibrator> calibrator_;
  std::optional<CalibratorOptions> calibrator_options_;  // of one that was made here
  std::function<void(const Variable&)> observer_;
  mutable std::mutex mutex_;  // guards the two caches
  mutable std::optional<QuantSpec> spec_;
  struct SpecKey {
    int rank = -1;              // of the input
    std::uint64_t version = 0;  // of amax
    Device device;              // of the input
    bool operator==(const SpecKey&) const = default;
  };
  mutable SpecKey spec_key_;
  WeightCodes weight_codes_;
};

}  // namespace fq
