#include "fakequant/export/gguf/detail/parameters.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/log.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/quantizer/compress.h"

namespace fq::detail {
namespace {

constexpr const char* kExport = "export_gguf";

// Selects rows in f32, which holds int8 codes and f16 scales exactly.
Tensor reorder_rows(const Tensor& x, const std::vector<std::int64_t>& rows) {
  return ops::index_select(Variable(x.to(DType::f32)), 0, rows).tensor().to(x.dtype());
}

// Counts the blocks that have codes but a step of 0: their values become 0 in the file.
std::int64_t lost_blocks(const Tensor& codes, const Tensor& steps) {
  const auto* k = codes.data<std::int8_t>();
  const auto* step = steps.data<float>();
  std::int64_t out = 0;
  for (std::int64_t b = 0; b < steps.numel(); ++b)
    if (step[b] == 0 && std::any_of(k + 32 * b, k + 32 * (b + 1), [](auto code) { return code != 0; })) ++out;
  return out;
}

}  // namespace

GgufParameters::GgufParameters(Module& model, bool f16) : f16_(f16) {
  for (const auto& [name, parameter] : model.named_parameters()) floats_.emplace_back(name, parameter);
  for (const auto& [path, module] : model.named_modules()) {
    const auto* layer = dynamic_cast<const QuantModule*>(module);
    if (layer == nullptr || !layer->quantized_weight().defined()) continue;
    if (auto* quantizer = layer->weight_quantizer(); quantizer != nullptr && quantizer->enabled())
      take_codes(path, *layer, ggml_scheme(quantizer->params()));
  }
}

GgufTensor GgufParameters::floats(const std::string& name, const Tensor& values) const {
  // Norms and biases are F32 in llama.cpp's own files too.
  const bool half = f16_ && values.rank() > 1;
  return {name, values.shape(), half ? GgufType::f16 : GgufType::f32, half ? values.to(DType::f16) : values};
}

GgufTensor GgufParameters::tensor(const std::string& ours, const std::string& name, bool positions) const {
  if (const auto found = codes_.find(ours); found != codes_.end()) return packed(name, {&found->second});
  const Tensor values = value(ours);
  if (positions) return {name, values.shape(), GgufType::f32, values};
  return floats(name, values);
}

GgufTensor GgufParameters::stacked(const std::vector<std::string>& ours, const std::string& name) const {
  // The parts (q, k and v) become one tensor, so all must have codes of one format.
  const auto coded = std::ranges::count_if(ours, [&](const auto& each) { return codes_.contains(each); });
  FQ_CHECK(coded == 0 || coded == std::ssize(ours), "export_gguf",
           "{} of {} are quantized, and the file has them in one tensor: quantize all or none", coded,
           fmt::join(ours, ", "));
  if (coded > 0) {
    std::vector<const Coded*> all;
    for (const auto& each : ours) all.push_back(&codes_.at(each));
    return packed(name, all);
  }
  std::vector<float> values;
  Shape shape = value(ours[0]).shape();
  shape[0] = 0;
  for (const auto& each : ours) {
    const Tensor part = value(each);
    shape[0] += part.dim(0);
    const auto more = part.to_vector<float>();
    values.insert(values.end(), more.begin(), more.end());
  }
  return floats(name, Tensor::from(values, shape));
}

GgufTensor GgufParameters::ordered(const std::string& ours, const std::string& name,
                                   const std::vector<std::int64_t>& rows) const {
  const auto found = codes_.find(ours);
  if (found == codes_.end()) return floats(name, reorder_rows(value(ours), rows));
  const ggml::Blocks& blocks = found->second.blocks;
  const Coded reordered{{reorder_rows(blocks.codes, rows), reorder_rows(blocks.scale, rows)},
                        found->second.rounding};
  return packed(name, {&reordered});
}

std::vector<GgufTensor> GgufParameters::all() const {
  std::vector<GgufTensor> out;
  for (const auto& [name, parameter] : floats_) out.push_back(tensor(name, name));
  return out;
}

bool GgufParameters::same(const std::string& a, const std::string& b) const {
  const auto left = codes_.find(a), right = codes_.find(b);
  if ((left == codes_.end()) != (right == codes_.end())) return false;
  // A tied parameter is one node. Two quantizers may still round it to different grids.
  return parameter(a).node() == parameter(b).node() &&
         (left == codes_.end() || left->second.rounding == right->second.rounding);
}

std::uint32_t GgufParameters::file_type() const {
  // Numbers of llama_ftype: 0 all F32, 1 mostly F16, 2 mostly Q4_0, 7 mostly Q8_0.
  if (codes_.empty()) return f16_ ? 1 : 0;
  return codes_.begin()->second.rounding == GgmlRounding::q4_0 ? 2 : 7;
}

void GgufParameters::take_codes(const std::string& path, const QuantModule& layer, const GgmlScheme* scheme) {
  FQ_CHECK(scheme != nullptr, kExport,
           "the weight of '{}' is not on a grid of ggml: calibrate and train with --preset {}", path,
           target_profile(Target::ggml).presets);
  const QuantizedTensor codes = weight_codes(layer);
  // codes: [N, K], scale: [N, K / 32]
  const Tensor host = codes.codes.to(Device::cpu());
  const Tensor scale = codes.grid.scale.to(Device::cpu()).reshape({host.dim(0), host.dim(1) / 32});
  if (const std::int64_t lost = lost_blocks(host, scale); lost > 0)
    log(LogLevel::warning,
        fmt::format("[export_gguf] the weight of '{}': {} of {} blocks have steps below 6e-8, the smallest "
                    "float16, and become 0",
                    path, lost, scale.numel()));
  codes_.emplace(path + ".weight", Coded{{host, scale.to(DType::f16)}, scheme->rounding()});
}

const Variable& GgufParameters::parameter(const std::string& name) const {
  const auto found = std::ranges::find(floats_, name, [](const auto& entry) { return entry.first; });
  FQ_CHECK(found != floats_.end(), kExport, "the network has no '{}'", name);
  return found->second;
}

Tensor GgufParameters::value(const std::string& name) const {
  return parameter(name).tensor().to(Device::cpu()).to(DType::f32).to(Layout::row_major);
}

GgufTensor GgufParameters::packed(const std::string& name, const std::vector<const Coded*>& parts) {
  const GgmlRounding rounding = parts[0]->rounding;
  std::vector<std::uint8_t> bytes;
  Shape shape{0, parts[0]->blocks.codes.dim(1)};
  for (const Coded* part : parts) {
    FQ_CHECK(part->rounding == rounding, kExport,
             "'{}' combines weights of different formats: use one rule for them", name);
    const Tensor own =
        rounding == GgmlRounding::q4_0 ? ggml::pack_q4_0(part->blocks) : ggml::pack_q8_0(part->blocks);
    // A row is a whole number of bytes, so stacking rows is appending bytes.
    const auto more = own.to_vector<std::uint8_t>();
    bytes.insert(bytes.end(), more.begin(), more.end());
    shape[0] += own.dim(0);
  }
  const auto row = static_cast<std::int64_t>(bytes.size()) / shape[0];
  return {name, shape, rounding == GgmlRounding::q4_0 ? GgufType::q4_0 : GgufType::q8_0,
          Tensor::from(bytes, {shape[0], row})};
}

}  // namespace fq::detail
