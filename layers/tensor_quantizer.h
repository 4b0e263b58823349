#pragma once

/// TensorQuantizer: the layer that watches a tensor and puts it on a grid.

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/layers/module.h"

namespace fq {

/// `deployed`: scale = amax / bound, codes, clipped gradient: what the engine computes. `reference`:
/// ModelOpt's fake_tensor_quant and scaled_e4m3 on floats, whose gradient passes through.
enum class Arithmetic { deployed, reference };

/// Driven by a QuantDescriptor. Three independent switches: `enabled` (else the input passes as it is),
/// `observing` (the calibrator collects the input) and `quantizing`. In `running` mode a training forward
/// moves amax towards that of its input before it quantizes by it. Quantizing without amax throws
/// ArgumentError naming the quantizer, unless the descriptor is dynamic. One quantizer may serve several
/// readers of one tensor; evaluation from several threads is safe.
class TensorQuantizer : public Module {
 public:
  explicit TensorQuantizer(QuantDescriptor descriptor = {}, Arithmetic arithmetic = Arithmetic::deployed);

  [[nodiscard]] std::string type() const override { return "tensor_quantizer"; }
  [[nodiscard]] std::string describe() const override;

  /// The path under which messages and files know it: "conv1.input_quantizer".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  void set_name(std::string name);
  [[nodiscard]] const QuantDescriptor& descriptor() const noexcept { return descriptor_; }
  /// Keeps amax when the axes stay the same.
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

  /// f32, rank 0 or one per channel, without `scale_amax`; undefined before calibration.
  [[nodiscard]] const Tensor& amax() const noexcept { return amax_; }
  /// Throws ArgumentError for a negative, infinite or NaN value, or the wrong number of them.
  void set_amax(const Tensor& amax);
  /// Sets amax to what the calibrator has collected. Throws ArgumentError when it has seen nothing.
  void load_calibrated_amax(const AmaxOptions& options = {});
  [[nodiscard]] Calibrator& calibrator();
  /// The smallest value collected; unknown before.
  [[nodiscard]] std::optional<float> observed_minimum() const;
  /// The grid in force: format, amax, scale. Throws ArgumentError without amax.
  [[nodiscard]] QuantSpec spec() const;
  [[nodiscard]] Tensor scale() const { return spec().scale; }

  /// Storage offset of exported codes, 0 or 128, and whether scales are raised to powers of two.
  void set_storage(int zero_point, bool pow2);
  [[nodiscard]] int zero_point() const noexcept { return zero_point_; }
  [[nodiscard]] bool pow2() const noexcept { return pow2_; }
  /// Lets calibration make it unsigned when every value collected was 0 or more (target `ort`).
  void set_may_become_unsigned(bool on) noexcept { may_become_unsigned_ = on; }
  /// Multiplies the input before it is observed and quantized (SmoothQuant, AWQ); undefined for none.
  void set_pre_quant_scale(Tensor scale);
  [[nodiscard]] const Tensor& pre_quant_scale() const noexcept { return pre_quant_scale_; }

  /// Quantizes a parameter; the codes are kept until the parameter or the grid changes.
  Variable weight(const Variable& w);

  /// Descriptor, amax, switches and calibrator state, under the prefix.
  void save(StateDict& state, const std::string& prefix) const;
  void load(const StateDict& state, const std::string& prefix);

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  struct WeightCodes {
    const void* node = nullptr;
    std::uint64_t version = 0;
    std::optional<QuantizedTensor> codes;
  };

  void observe(const Variable& x);
  void move_amax(const Variable& x);
  [[nodiscard]] QuantSpec spec_of(const Tensor& amax) const;
  [[nodiscard]] QuantSpec spec_for(const Variable& x) const;
  [[nodiscard]] Variable quantize(const Variable& x);
  [[nodiscard]] Variable quantize_reference(const Variable& x) const;
  void forget();

  QuantDescriptor descriptor_;
  Arithmetic arithmetic_;
  std::string name_;
  bool enabled_ = true, observing_ = false, quantizing_ = true, running_ = false, pow2_ = false;
  bool may_become_unsigned_ = false;
  double momentum_ = 0.01;
  int zero_point_ = 0;
  Tensor amax_, pre_quant_scale_;
  std::unique_ptr<Calibrator> calibrator_;
  mutable std::mutex mutex_;  // guards the two caches
  mutable std::optional<QuantSpec> spec_;
  WeightCodes weight_codes_;
};

}  // namespace fq
