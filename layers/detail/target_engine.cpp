#include "fakequant/layers/detail/target_engine.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/engines/engine_ops.h"
#include "fakequant/layers/detail/float_products.h"
#include "fakequant/layers/detail/quant_factories.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/conv.h"
#include "fakequant/layers/modules/quant_engine_layers.h"
#include "fakequant/layers/modules/recurrent.h"
#include "fakequant/layers/quantizer/detail/ggml_scheme.h"

namespace fq::detail {
namespace {

// XNNPACK's 4-bit kernels require columns and blocks that are multiples of 32 (ENGINES §3).
constexpr std::int64_t kXnnpackBlock = 32;

bool is_table(const Module& module) { return dynamic_cast<const Embedding*>(&module) != nullptr; }

Shape weight_shape(const Module& layer) {
  for (const auto& [name, parameter] : layer.named_parameters())
    if (name == "weight") return parameter.shape();
  return {};
}

/// Target `none`: linear and convolution layers only, codes of any sign.
class AnyEngine final : public TargetEngine {
 public:
  AnyEngine() : TargetEngine(Target::none) {}
  [[nodiscard]] bool quantizes_sums() const noexcept override { return false; }
  [[nodiscard]] std::optional<bool> prefers_unsigned(const UsedTensor& /*tensor*/) const override {
    return std::nullopt;
  }
};

/// ONNX Runtime with fixed ranges.
class OrtEngine final : public TargetEngine {
 public:
  OrtEngine() : TargetEngine(Target::ort) {}
  [[nodiscard]] bool multiplies_recurrent_codes() const noexcept override { return true; }
  [[nodiscard]] std::optional<bool> prefers_unsigned(const UsedTensor& tensor) const override {
    return tensor.non_negative;
  }
  [[nodiscard]] bool stores_unsigned_bytes() const noexcept override { return true; }
  void log_float_operators(Module& model, const Shape& input_shape) const override {
    warn_float_operators(model, input_shape, Target::ort);
  }
};

/// An engine that rounds the inputs of linear layers at run time.
class RowTargetEngine : public TargetEngine {
 public:
  RowTargetEngine(Target target, RowEngine rows) : TargetEngine(target), rows_(rows) {}

  [[nodiscard]] bool is_quantizable(const Module& module) const override {
    if (is_table(module)) return has_tables();
    // Convolutions and recurrent layers stay in floats, with a warning by reason_for_floats.
    return dynamic_cast<const Linear*>(&module) != nullptr || dynamic_cast<const Conv*>(&module) != nullptr ||
           dynamic_cast<const Recurrent*>(&module) != nullptr;
  }
  [[nodiscard]] std::string reason_for_floats(const std::string& path, const Module& layer,
                                              const QuantDescriptor& weight,
                                              const MergedRules& input) const override;
  [[nodiscard]] std::shared_ptr<Module> counterpart(const Module& layer, std::size_t inputs,
                                                    const MergedRules& input) const override;

 protected:
  [[nodiscard]] RowEngine rows() const noexcept { return rows_; }
  /// Returns how inputs are rounded by the rules of a layer.
  [[nodiscard]] virtual RowEngine row_engine(const MergedRules& /*input*/) const { return rows_; }
  /// Whether embeddings are tables of codes.
  [[nodiscard]] virtual bool has_tables() const noexcept { return false; }
  /// Returns the number that must divide the columns of a weight.
  [[nodiscard]] virtual std::int64_t block_length(const QuantDescriptor& /*weight*/) const { return 1; }

 private:
  void check_input(const std::string& path, const MergedRules& input) const;
  void check_weight(const std::string& path, const QuantDescriptor& weight, const Shape& shape) const;

  RowEngine rows_;
};

void RowTargetEngine::check_input(const std::string& path, const MergedRules& input) const {
  // A field may be absent or null; both mean the default.
  const NumBits bits = input.all.num_bits.value_or(std::nullopt).value_or(NumBits());
  const bool dynamic = input.all.dynamic && input.all.dynamic->value_or(false);
  const bool blocks = input.has_blocks() && (*input.all.block_sizes)->type == BlockType::dynamic;
  FQ_CHECK(input.is_enabled() && bits == NumBits(8) && input.all.sequence.empty() && (dynamic || blocks),
           "quantize",
           "{} rounds the input of '{}' to 8 bits at run time, and '{}.input_quantizer' differs: use "
           "--preset {}, or --target none",
           profile().engine, path, path, profile().presets);
}

void RowTargetEngine::check_weight(const std::string& path, const QuantDescriptor& weight,
                                   const Shape& shape) const {
  Grid grid;
  grid.format = weight.format();
  // The engine's own rule decides (core), for a weight [N, K].
  grid.granularity = weight.granularity(2);
  std::string why;
  FQ_CHECK(multiplies(rows_, grid, shape, &why), "quantize",
           "{} does not multiply {}, as '{}.weight_quantizer' requires: use --preset {}, or --target none",
           profile().engine, why, path, profile().presets);
}

std::string RowTargetEngine::reason_for_floats(const std::string& path, const Module& layer,
                                               const QuantDescriptor& weight,
                                               const MergedRules& input) const {
  const bool table = is_table(layer);
  if (!table && dynamic_cast<const Linear*>(&layer) == nullptr)
    return fmt::format(
        "'{}' stays in floats: {} multiplies codes only in linear layers; --target ort has codes "
        "of a {}",
        path, profile().engine, layer.type());
  const Shape shape = weight_shape(layer);
  if (!table) check_input(path, input);
  if (const auto block = block_length(weight); shape.at(1) % block != 0)
    return fmt::format("'{}' stays in floats: its rows of {} are no whole blocks of {} as {} has them", path,
                       shape[1], block, profile().engine);
  check_weight(path, weight, shape);
  return {};
}

std::shared_ptr<Module> RowTargetEngine::counterpart(const Module& layer, std::size_t /*inputs*/,
                                                     const MergedRules& input) const {
  std::shared_ptr<Module> made;
  if (const auto* linear = dynamic_cast<const Linear*>(&layer))
    made = std::make_shared<QuantEngineLinear>(*linear, row_engine(input));
  else
    made = std::make_shared<QuantEmbedding>(dynamic_cast<const Embedding&>(layer));
  dynamic_cast<QuantModule&>(*made).set_target(profile().target);
  return made;
}

/// ONNX Runtime's DynamicQuantizeLinear.
class OrtDynamicEngine final : public RowTargetEngine {
 public:
  OrtDynamicEngine() : RowTargetEngine(Target::ort_dynamic, RowEngine::ort_dynamic_samples) {}

 private:
  /// Uses one range for all samples unless a rule keeps an axis.
  [[nodiscard]] RowEngine row_engine(const MergedRules& input) const override {
    const bool per_sample = input.all.axis && input.all.axis->has_value() && !(*input.all.axis)->empty();
    return per_sample ? rows() : RowEngine::ort_dynamic;
  }
};

class XnnpackEngine final : public RowTargetEngine {
 public:
  XnnpackEngine() : RowTargetEngine(Target::xnnpack, RowEngine::xnnpack) {}
  [[nodiscard]] const WeightScheme& weight_scheme(const QuantDescriptor& weight) const override {
    return weight.format().is_integer() && weight.format().bits() <= 4 ? bf16_scale_weights()
                                                                       : plain_weights();
  }

 private:
  [[nodiscard]] std::int64_t block_length(const QuantDescriptor& weight) const override {
    if (weight.format().bits() > 4) return 1;
    const auto& lengths = weight.block_sizes().lengths;
    return lengths.size() == 1 ? std::max(lengths.begin()->second, kXnnpackBlock) : kXnnpackBlock;
  }
};

class GgmlEngine final : public RowTargetEngine {
 public:
  GgmlEngine() : RowTargetEngine(Target::ggml, RowEngine::ggml) {}
  [[nodiscard]] const WeightScheme& weight_scheme(const QuantDescriptor& weight) const override {
    if (!weight.format().is_integer()) return plain_weights();
    return ggml_weights(weight.format().bits() == 4 ? GgmlRounding::q4_0 : GgmlRounding::q8_0);
  }
  /// Replaces GELU by llama.cpp's, which reads a table of f16.
  void replace_functions(Module& model, const TraceGraph& graph) const override {
    for (const auto& node : graph.nodes) {
      if (node.op != "gelu" || node.path.empty() || model.at(node.path).type() != "gelu") continue;
      const bool by_tanh = node.attribute<std::string>("approximate") == "tanh";
      model.replace(node.path, std::make_shared<Function>("gelu", "tanh, from a table of f16",
                                                          [by_tanh](const Variable& x, bool) {
                                                            return ops::ggml_gelu(x, by_tanh);
                                                          }));
    }
  }
  [[nodiscard]] std::vector<std::string> fit_weights(Module& model) const override {
    return fit_ggml_weights(model);
  }

 private:
  [[nodiscard]] bool has_tables() const noexcept override { return true; }
  [[nodiscard]] std::int64_t block_length(const QuantDescriptor& /*weight*/) const override {
    return ggml_block;
  }
};

}  // namespace

bool TargetEngine::is_quantizable(const Module& module) const { return detail::is_quantizable(module); }

std::optional<bool> TargetEngine::prefers_unsigned(const UsedTensor& /*tensor*/) const { return false; }

std::string TargetEngine::reason_for_floats(const std::string& /*path*/, const Module& /*layer*/,
                                            const QuantDescriptor& /*weight*/,
                                            const MergedRules& /*input*/) const {
  return {};
}

std::shared_ptr<Module> TargetEngine::counterpart(const Module& layer, std::size_t inputs,
                                                  const MergedRules& /*input*/) const {
  auto made = quantized_counterpart(layer, inputs);
  if (auto* quant = dynamic_cast<QuantModule*>(made.get())) quant->set_target(profile_.target);
  return made;
}

const WeightScheme& TargetEngine::weight_scheme(const QuantDescriptor& /*weight*/) const {
  return plain_weights();
}

void TargetEngine::replace_functions(Module& /*model*/, const TraceGraph& /*graph*/) const {}

std::vector<std::string> TargetEngine::fit_weights(Module& /*model*/) const { return {}; }

void TargetEngine::log_float_operators(Module& /*model*/, const Shape& /*input_shape*/) const {}

// Static objects in a function: engines are immutable, so threads may share them.
const TargetEngine& target_engine(Target target) {
  static const AnyEngine any;
  static const OrtEngine ort;
  static const TargetEngine tensorrt(Target::tensorrt);
  static const OrtDynamicEngine ort_dynamic;
  static const XnnpackEngine xnnpack;
  static const GgmlEngine ggml;
  for (const TargetEngine* engine :
       {static_cast<const TargetEngine*>(&any), static_cast<const TargetEngine*>(&ort), &tensorrt,
        static_cast<const TargetEngine*>(&ort_dynamic), static_cast<const TargetEngine*>(&xnnpack)})
    if (engine->profile().target == target) return *engine;
  return ggml;
}

}  // namespace fq::detail
