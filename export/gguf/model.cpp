#include "fakequant/export/gguf/model.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/gguf/detail/gpt2.h"
#include "fakequant/export/gguf/detail/vocabulary.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/reference/ggml.h"

namespace fq {
namespace {

constexpr const char* kExport = "export_gguf";

/// What becomes tensors: floats, or blocks of codes.
class Parameters {
 public:
  Parameters(Module& model, bool f16) : f16_(f16) {
    for (const auto& [name, parameter] : model.named_parameters()) floats_.emplace_back(name, parameter);
    for (const auto& [path, module] : model.named_modules()) {
      const auto* layer = dynamic_cast<const QuantModule*>(module);
      if (layer == nullptr || !layer->quantized_weight().defined()) continue;
      if (auto* quantizer = layer->weight_quantizer(); quantizer != nullptr && quantizer->enabled())
        take_codes(path, *layer, quantizer->settings().engine_grid);
    }
  }

  /// Of our name, as `name`. Positions are added as they are.
  [[nodiscard]] GgufTensor tensor(const std::string& ours, const std::string& name,
                                  bool positions = false) const {
    if (const auto found = codes_.find(ours); found != codes_.end()) return packed(name, {&found->second});
    const Tensor values = value(ours);
    const bool half = f16_ && !positions && values.rank() > 1;
    return {name, values.shape(), half ? GgufType::f16 : GgufType::f32,
            half ? values.to(DType::f16) : values};
  }
  /// Several of one kind, row below row.
  [[nodiscard]] GgufTensor stacked(const std::vector<std::string>& ours, const std::string& name) const {
    if (codes_.contains(ours[0])) {
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
    const bool half = f16_ && shape.size() > 1;
    const Tensor all = Tensor::from(values, shape);
    return {name, shape, half ? GgufType::f16 : GgufType::f32, half ? all.to(DType::f16) : all};
  }
  /// All of them, by our names.
  [[nodiscard]] std::vector<GgufTensor> all() const {
    std::vector<GgufTensor> out;
    for (const auto& [name, parameter] : floats_) out.push_back(tensor(name, name));
    return out;
  }
  /// Whether both names are of one parameter, on one grid.
  [[nodiscard]] bool same(const std::string& a, const std::string& b) const {
    const auto left = codes_.find(a), right = codes_.find(b);
    if ((left == codes_.end()) != (right == codes_.end())) return false;
    return parameter(a).node() == parameter(b).node() &&
           (left == codes_.end() || left->second.grid == right->second.grid);
  }
  /// llama.cpp's number for the type of most tensors.
  [[nodiscard]] std::uint32_t file_type() const {
    if (codes_.empty()) return f16_ ? 1 : 0;
    return codes_.begin()->second.grid == EngineGrid::q4_0 ? 2 : 7;
  }

 private:
  struct Coded {
    ggml::Blocks blocks;
    EngineGrid grid;
  };

  void take_codes(const std::string& path, const QuantModule& layer, EngineGrid grid) {
    FQ_CHECK(grid == EngineGrid::q4_0 || grid == EngineGrid::q8_0, kExport,
             "the weight of '{}' is not on a grid of ggml: calibrate and train with --preset {}", path,
             profile_of(Target::ggml).presets);
    const QuantizedTensor codes = weight_codes(layer);
    const Tensor host = codes.codes.to(Device::cpu());
    const Tensor scale = codes.spec.scale.to(Device::cpu()).reshape({host.dim(0), host.dim(1) / 32});
    codes_.emplace(path + ".weight", Coded{{host, scale.to(DType::f16)}, grid});
  }
  [[nodiscard]] const Variable& parameter(const std::string& name) const {
    const auto found = std::ranges::find(floats_, name, [](const auto& entry) { return entry.first; });
    FQ_CHECK(found != floats_.end(), kExport, "the network has no '{}'", name);
    return found->second;
  }
  [[nodiscard]] Tensor value(const std::string& name) const {
    return parameter(name).tensor().to(Device::cpu()).to(DType::f32).to(Layout::row_major);
  }
  [[nodiscard]] static GgufTensor packed(const std::string& name, const std::vector<const Coded*>& parts) {
    const EngineGrid grid = parts[0]->grid;
    std::vector<std::uint8_t> bytes;
    Shape shape{0, parts[0]->blocks.codes.dim(1)};
    for (const Coded* part : parts) {
      FQ_CHECK(part->grid == grid, kExport, "'{}' is made of weights of other formats: give them one rule",
               name);
      const Tensor own =
          grid == EngineGrid::q4_0 ? ggml::pack_q4_0(part->blocks) : ggml::pack_q8_0(part->blocks);
      const auto more = own.to_vector<std::uint8_t>();
      bytes.insert(bytes.end(), more.begin(), more.end());
      shape[0] += own.dim(0);
    }
    const auto row = static_cast<std::int64_t>(bytes.size()) / shape[0];
    return {name, shape, grid == EngineGrid::q4_0 ? GgufType::q4_0 : GgufType::q8_0,
            Tensor::from(bytes, {shape[0], row})};
  }

  bool f16_;
  std::vector<std::pair<std::string, Variable>> floats_;
  std::map<std::string, Coded> codes_;
};

void add_gpt2_keys(GgufModel& out, const detail::Gpt2& net) {
  const auto number = [&](const char* key, std::int64_t value) {
    out.metadata.emplace_back(std::string("gpt2.") + key, static_cast<std::uint32_t>(value));
  };
  number("context_length", net.context);
  number("embedding_length", net.width);
  number("feed_forward_length", net.feed);
  number("block_count", static_cast<std::int64_t>(net.blocks.size()));
  number("attention.head_count", net.heads);
  out.metadata.emplace_back("gpt2.attention.layer_norm_epsilon", 1e-5f);
}

void add_gpt2_tensors(GgufModel& out, const detail::Gpt2& net, const Parameters& from) {
  const auto both = [&](const std::string& ours, const std::string& name) {
    for (const char* part : {".weight", ".bias"})
      out.tensors.push_back(from.tensor(ours + part, name + part));
  };
  out.tensors.push_back(from.tensor(net.tokens + ".weight", "token_embd.weight"));
  out.tensors.push_back(from.tensor(net.positions + ".weight", "position_embd.weight", true));
  both(net.norm, "output_norm");
  if (!from.same(net.head + ".weight", net.tokens + ".weight"))
    out.tensors.push_back(from.tensor(net.head + ".weight", "output.weight"));
  for (std::size_t i = 0; i < net.blocks.size(); ++i) {
    const detail::Gpt2Block& block = net.blocks[i];
    const std::string name = fmt::format("blk.{}.", i);
    both(block.attention_norm, name + "attn_norm");
    for (const char* part : {".weight", ".bias"}) {
      std::vector<std::string> ours;
      for (const char* projection : {".q_proj", ".k_proj", ".v_proj"})
        ours.push_back(block.attention + projection + part);
      out.tensors.push_back(from.stacked(ours, name + "attn_qkv" + part));
    }
    both(block.attention + ".out_proj", name + "attn_output");
    both(block.feed_norm, name + "ffn_norm");
    both(block.up, name + "ffn_up");
    both(block.down, name + "ffn_down");
  }
}

}  // namespace

GgufModel gguf_model(Module& model, const Shape& input_shape, const GgufOptions& options) {
  check_not_compressed(model, kExport);
  const Parameters from(model, options.f16);
  const auto gpt2 = detail::gpt2_of(model, input_shape);
  GgufModel out;
  out.metadata.emplace_back("general.architecture", std::string(gpt2 ? "gpt2" : "fakequant"));
  out.metadata.emplace_back("general.quantized_by", std::string("fakequant"));
  out.metadata.emplace_back("general.name", options.name);
  out.metadata.emplace_back("general.file_type", from.file_type());
  out.metadata.emplace_back("general.quantization_version", std::uint32_t{2});
  if (gpt2) {
    add_gpt2_keys(out, *gpt2);
    add_gpt2_tensors(out, *gpt2, from);
    if (!options.vocabulary.empty())
      detail::add_vocabulary(out, options.vocabulary, options.merges, gpt2->vocabulary);
  } else {
    out.tensors = from.all();
  }
  return out;
}

}  // namespace fq
