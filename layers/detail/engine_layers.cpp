#include "fakequant/layers/detail/engine_layers.h"

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/engines/engine_gelu.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/conv.h"
#include "fakequant/layers/modules/quant_engine_layers.h"
#include "fakequant/layers/modules/recurrent.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kBlock = 32;

Shape table_of(const Module& layer) {
  for (const auto& [name, parameter] : layer.named_parameters())
    if (name == "weight") return parameter.shape();
  return {};
}

/// A range for all samples where no rule keeps them apart.
RowEngine engine_of(const TargetProfile& profile, const MergedRules& input) {
  const bool apart = input.all.axis && input.all.axis->has_value() && !(*input.all.axis)->empty();
  if (*profile.rows == RowEngine::ort_dynamic_samples && !apart) return RowEngine::ort_dynamic;
  return *profile.rows;
}

/// Columns that must be whole blocks.
std::int64_t block_of(const TargetProfile& profile, const QuantDescriptor& weight) {
  if (profile.rows == RowEngine::ggml) return kBlock;
  if (profile.rows != RowEngine::xnnpack || weight.format().bits() > 4) return 1;
  const auto& lengths = weight.block_sizes().lengths;
  return lengths.size() == 1 ? std::max<std::int64_t>(lengths.begin()->second, kBlock) : kBlock;
}

void check_input(const std::string& path, const TargetProfile& profile, const MergedRules& input) {
  const NumBits bits = input.all.num_bits.value_or(std::nullopt).value_or(NumBits());
  const bool dynamic = input.all.dynamic && input.all.dynamic->value_or(false);
  const bool blocks = input.has_blocks() && (*input.all.block_sizes)->type == BlockType::dynamic;
  FQ_CHECK(input.switched_on() && bits == NumBits(8) && input.all.sequence.empty() && (dynamic || blocks),
           "quantize",
           "{} rounds the input of '{}' to 8 bits as it runs, and '{}.input_quantizer' says otherwise: use "
           "--preset {}, or --target none",
           profile.engine, path, path, profile.presets);
}

void check_weight(const std::string& path, const TargetProfile& profile, const QuantDescriptor& weight,
                  const Shape& shape) {
  QuantSpec spec;
  spec.format = weight.format();
  spec.granularity = weight.granularity(2);
  std::string why;
  FQ_CHECK(multiplies(*profile.rows, spec, shape, &why), "quantize",
           "{} does not multiply {}, as '{}.weight_quantizer' asks for: use --preset {}, or --target none",
           profile.engine, why, path, profile.presets);
}

}  // namespace

bool is_engine_layer(const Module& module, const TargetProfile& profile) {
  if (dynamic_cast<const Embedding*>(&module) != nullptr) return profile.tables;
  return dynamic_cast<const Linear*>(&module) != nullptr || dynamic_cast<const Conv*>(&module) != nullptr ||
         dynamic_cast<const Recurrent*>(&module) != nullptr;
}

std::string why_floats(const std::string& path, const Module& layer, const TargetProfile& profile,
                       const QuantDescriptor& weight, const MergedRules& input) {
  const bool table = dynamic_cast<const Embedding*>(&layer) != nullptr;
  if (!table && dynamic_cast<const Linear*>(&layer) == nullptr)
    return fmt::format(
        "'{}' stays in floats: {} multiplies codes in linear layers alone; --target ort has codes "
        "of a {}",
        path, profile.engine, layer.type());
  const Shape shape = table_of(layer);
  if (!table) check_input(path, profile, input);
  if (const auto block = block_of(profile, weight); shape.at(1) % block != 0)
    return fmt::format("'{}' stays in floats: its rows of {} are no whole blocks of {} as {} has them", path,
                       shape[1], block, profile.engine);
  check_weight(path, profile, weight, shape);
  return {};
}

std::shared_ptr<Module> engine_counterpart(const Module& layer, const TargetProfile& profile,
                                           const MergedRules& input) {
  std::shared_ptr<Module> made;
  if (const auto* linear = dynamic_cast<const Linear*>(&layer))
    made = std::make_shared<QuantEngineLinear>(*linear, engine_of(profile, input));
  else
    made = std::make_shared<QuantEmbedding>(dynamic_cast<const Embedding&>(layer));
  dynamic_cast<QuantModule&>(*made).set_target(profile.target);
  return made;
}

void take_engine_functions(Module& model, const TraceGraph& graph, const TargetProfile& profile) {
  if (!profile.f16_gelu) return;
  for (const auto& node : graph.nodes) {
    if (node.op != "gelu" || node.path.empty() || model.at(node.path).type() != "gelu") continue;
    const bool by_tanh = node.attribute<std::string>("approximate") == "tanh";
    model.replace(node.path, std::make_shared<Function>(
                                 "gelu", "tanh, from a table of f16",
                                 [by_tanh](const Variable& x, bool) { return ops::ggml_gelu(x, by_tanh); }));
  }
}

}  // namespace fq::detail
