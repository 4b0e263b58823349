#pragma once

/// TargetEngine: adapts `quantize` to the engine of a target. One immutable object for each target.
///
///     const TargetEngine& engine = target_engine(Target::ggml);
///     engine.profile().presets;  // "q4_0 or q8_0"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/layers/config/detail/merged_rules.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/detail/placement.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"

namespace fq::detail {

class TargetEngine {
 public:
  explicit TargetEngine(Target target) : profile_(target_profile(target)) {}
  virtual ~TargetEngine() = default;
  TargetEngine(const TargetEngine&) = delete;
  TargetEngine& operator=(const TargetEngine&) = delete;

  [[nodiscard]] const TargetProfile& profile() const noexcept { return profile_; }

  /// Whether `quantize` replaces modules of that type, or warns that they stay in floats.
  [[nodiscard]] virtual bool is_quantizable(const Module& module) const;
  /// Whether inputs of additions, concatenations and averages are quantized too.
  [[nodiscard]] virtual bool quantizes_sums() const noexcept { return true; }
  /// Whether recurrent layers multiply codes.
  [[nodiscard]] virtual bool multiplies_recurrent_codes() const noexcept { return false; }

  /// Returns whether integer codes of an activation without blocks are unsigned. Nothing if the engine runs
  /// both.
  [[nodiscard]] virtual std::optional<bool> prefers_unsigned(const UsedTensor& tensor) const;
  /// Whether files store codes as unsigned bytes: signed codes plus 128.
  [[nodiscard]] virtual bool stores_unsigned_bytes() const noexcept { return false; }

  /// Returns why a layer stays in floats although its weight has a rule; empty if the engine multiplies its
  /// codes. Throws ArgumentError naming the layer for formats, blocks and inputs that the engine does not
  /// support.
  [[nodiscard]] virtual std::string reason_for_floats(const std::string& path, const Module& layer,
                                                      const QuantDescriptor& weight,
                                                      const MergedRules& input) const;
  /// Returns the quantized counterpart of a layer that reads `inputs` tensors. Its target is set.
  [[nodiscard]] virtual std::shared_ptr<Module> counterpart(const Module& layer, std::size_t inputs,
                                                            const MergedRules& input) const;
  /// Returns how the engine stores a weight with that descriptor.
  [[nodiscard]] virtual const WeightScheme& weight_scheme(const QuantDescriptor& weight) const;
  /// Replaces functions of the traced model by the functions of the engine.
  virtual void replace_functions(Module& model, const TraceGraph& graph) const;
  /// Chooses the steps of weights that the engine stores by rules of its own. Returns warnings.
  [[nodiscard]] virtual std::vector<std::string> fit_weights(Module& model) const;
  /// Logs the operators that the engine computes in floats between integer layers.
  virtual void log_float_operators(Module& model, const Shape& input_shape) const;

 private:
  const TargetProfile& profile_;
};

/// Returns the engine of a target.
[[nodiscard]] const TargetEngine& target_engine(Target target);

}  // namespace fq::detail
