#include "fakequant/export/gguf/import.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/gguf/detail/llama.h"
#include "fakequant/export/gguf/file.h"
#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/export/quantized/detail/file_grids.h"
#include "fakequant/export/safetensors/detail/weight_names.h"
#include "fakequant/export/transformers/detail/plan.h"
#include "fakequant/layers/modules/rotary_scaling.h"
#include "fakequant/train/loop/detail/finite.h"

namespace fq::detail {
namespace {

using nlohmann::ordered_json;

// Names of transformers and of llama.cpp (gguf-py/gguf/tensor_mapping.py). '*' matches the layer number,
// and at the end for weight or bias.
const WeightRename kNames[] = {
    {"transformer.wte.*", "token_embd.*"},
    {"transformer.wpe.*", "position_embd.*"},
    {"transformer.ln_f.*", "output_norm.*"},
    {"transformer.h.*.ln_1.*", "blk.*.attn_norm.*"},
    {"transformer.h.*.attn.c_attn.*", "blk.*.attn_qkv.*"},
    {"transformer.h.*.attn.c_proj.*", "blk.*.attn_output.*"},
    {"transformer.h.*.ln_2.*", "blk.*.ffn_norm.*"},
    {"transformer.h.*.mlp.c_fc.*", "blk.*.ffn_up.*"},
    {"transformer.h.*.mlp.c_proj.*", "blk.*.ffn_down.*"},
    {"model.embed_tokens.*", "token_embd.*"},
    {"model.norm.*", "output_norm.*"},
    {"model.layers.*.input_layernorm.*", "blk.*.attn_norm.*"},
    {"model.layers.*.self_attn.o_proj.*", "blk.*.attn_output.*"},
    {"model.layers.*.self_attn.q_norm.*", "blk.*.attn_q_norm.*"},
    {"model.layers.*.self_attn.k_norm.*", "blk.*.attn_k_norm.*"},
    {"model.layers.*.self_attn.q_proj.*", "blk.*.attn_q.*"},
    {"model.layers.*.self_attn.k_proj.*", "blk.*.attn_k.*"},
    {"model.layers.*.self_attn.v_proj.*", "blk.*.attn_v.*"},
    {"model.layers.*.post_attention_layernorm.*", "blk.*.ffn_norm.*"},
    {"model.layers.*.mlp.gate_proj.*", "blk.*.ffn_gate.*"},
    {"model.layers.*.mlp.up_proj.*", "blk.*.ffn_up.*"},
    {"model.layers.*.mlp.down_proj.*", "blk.*.ffn_down.*"},
    {"lm_head.*", "output.*"},
};

class Keys {
 public:
  Keys(const GgufModel& model, const std::string& file) : model_(model), file_(file) {
    architecture = text("general.architecture").value_or("");
  }

  std::string architecture;

  [[noreturn]] void fail(const std::string& why) const {
    throw FileError(file_, {}, fmt::format("[import] {}: {}", file_, why));
  }
  [[nodiscard]] std::optional<std::string> text(const std::string& key) const {
    const GgufValue* found = model_.value(key);
    if (found == nullptr) return std::nullopt;
    if (!std::holds_alternative<std::string>(*found)) fail(fmt::format("the key '{}' is no text", key));
    return std::get<std::string>(*found);
  }
  /// Returns the number with a key of the architecture, or null if it is missing.
  [[nodiscard]] ordered_json number(const char* key) const {
    const std::string name = architecture + "." + key;
    const GgufValue* found = model_.value(name);
    if (found == nullptr) return nullptr;
    return std::visit(
        [&](const auto& value) -> ordered_json {
          using T = std::decay_t<decltype(value)>;
          // Files have float32: the shortest decimal of 1e-5f is 1e-5, the number that the network was
          // trained with.
          if constexpr (std::is_same_v<T, float>) return shortest(value);
          if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
            return value;
          else
            fail(fmt::format("the key '{}' is no number", name));
        },
        *found);
  }
  [[nodiscard]] ordered_json needed(const char* key) const {
    ordered_json found = number(key);
    if (found.is_null()) fail(fmt::format("the key '{}.{}' is missing", architecture, key));
    return found;
  }
  // The key vocab_size is optional, so the rows of the table count.
  [[nodiscard]] std::int64_t vocabulary() const {
    const GgufTensor* table = model_.tensor("token_embd.weight");
    if (table == nullptr || table->shape.size() != 2) fail("the table 'token_embd.weight' is missing");
    return table->shape[0];
  }
  [[nodiscard]] bool has(const char* tensor) const { return model_.tensor(tensor) != nullptr; }

 private:
  const GgufModel& model_;
  const std::string& file_;
};

// Missing optional keys are null in config.json, where a null means the default. llama.cpp computes the
// GELU of gpt2 with tanh.
ordered_json gpt2_config(const Keys& keys) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"n_embd", keys.needed("embedding_length")},
          {"n_inner", keys.number("feed_forward_length")},
          {"n_positions", keys.needed("context_length")},
          {"n_layer", keys.needed("block_count")},
          {"n_head", keys.needed("attention.head_count")},
          {"layer_norm_epsilon", keys.number("attention.layer_norm_epsilon")},
          {"activation_function", "gelu_new"},
          {"vocab_size", keys.vocabulary()},
          {"tie_word_embeddings", !keys.has("output.weight")}};
}

/// Returns "rope_parameters" of config.json, or null if positions are not scaled.
ordered_json rope_scaling(const Keys& keys) {
  const auto type = keys.text(keys.architecture + ".rope.scaling.type");
  if (!type || *type == "none") return nullptr;
  if (*type != "linear" && *type != "yarn")
    keys.fail(fmt::format("rotary positions are scaled by '{}', which is not supported: use linear or yarn",
                          *type));
  ordered_json out{{"rope_type", *type}, {"factor", keys.needed("rope.scaling.factor")}};
  if (*type == "linear") return out;
  out["original_max_position_embeddings"] = keys.needed("rope.scaling.original_context_length");
  out["beta_fast"] = keys.number("rope.scaling.yarn_beta_fast");
  out["beta_slow"] = keys.number("rope.scaling.yarn_beta_slow");
  // llama.cpp multiplies its own magnitude of YaRN by attn_factor. In config.json, attention_factor is the
  // whole magnitude.
  const ordered_json more = keys.number("rope.scaling.attn_factor");
  if (!more.is_null() && more.get<double>() != 1)
    out["attention_factor"] =
        more.get<double>() * rotary_magnitude({.kind = RotaryScaling::Kind::yarn, .factor = out["factor"]});
  return out;
}

void check_rotary(const Keys& keys, const ordered_json& head) {
  if (keys.has("rope_freqs.weight"))
    keys.fail("rotary positions have factors ('rope_freqs.weight'), which are not supported");
  const ordered_json turned = keys.number("rope.dimension_count");
  if (!turned.is_null() && !head.is_null() && turned != head)
    keys.fail(fmt::format("rotary positions rotate {} of the {} elements of a head, which is not supported",
                          turned.dump(), head.dump()));
}

ordered_json llama_config(const Keys& keys) {
  const ordered_json head = keys.number("attention.key_length"),
                     value = keys.number("attention.value_length");
  if (head != value) keys.fail("heads of keys and values have different sizes, which is not supported");
  check_rotary(keys, head);
  const char* name = keys.architecture == "qwen3"   ? "Qwen3ForCausalLM"
                     : keys.architecture == "qwen2" ? "Qwen2ForCausalLM"
                                                    : "LlamaForCausalLM";
  ordered_json out{{"architectures", {name}},
                   {"hidden_size", keys.needed("embedding_length")},
                   {"intermediate_size", keys.needed("feed_forward_length")},
                   {"num_hidden_layers", keys.needed("block_count")},
                   {"num_attention_heads", keys.needed("attention.head_count")},
                   {"num_key_value_heads", keys.number("attention.head_count_kv")},
                   {"head_dim", head},
                   {"max_position_embeddings", keys.needed("context_length")},
                   {"rms_norm_eps", keys.needed("attention.layer_norm_rms_epsilon")},
                   {"rope_theta", keys.number("rope.freq_base")},
                   {"rope_parameters", rope_scaling(keys)},
                   {"hidden_act", "silu"},
                   {"vocab_size", keys.vocabulary()},
                   {"tie_word_embeddings", !keys.has("output.weight")}};
  return out;
}

/// Returns config.json of a file with the architecture gpt2, llama, qwen2 or qwen3. Throws FileError that
/// names the file for another architecture, for keys that are missing or have another type, and for scaling
/// of rotary positions other than linear and yarn.
nlohmann::ordered_json gguf_config(const GgufModel& model, const std::string& file) {
  const Keys keys(model, file);
  if (keys.architecture == "gpt2") return gpt2_config(keys);
  if (keys.architecture == "llama" || keys.architecture == "qwen2" || keys.architecture == "qwen3")
    return llama_config(keys);
  keys.fail(fmt::format("the architecture is '{}': known are gpt2, llama, qwen2, qwen3",
                        keys.architecture.substr(0, 100)));
}

/// Returns llama.cpp's name of a tensor of transformers, or an empty text if it has none.
std::string gguf_name(const std::string& theirs) {
  std::string out;
  for (const auto& rename : kNames)
    if (rename_weight(rename, theirs, out)) return out;
  return {};
}

}  // namespace
}  // namespace fq::detail

namespace fq {
namespace {

using nlohmann::ordered_json;

bool is_coded(const GgufTensor& tensor) {
  return tensor.type == GgufType::q4_0 || tensor.type == GgufType::q8_0;
}

/// Content of a parameter: values, and for blocks also codes and scales.
struct Taken {
  Tensor values, codes, scale;
};

class GgufImport {
 public:
  GgufImport(const GgufModel& model, const std::string& file)
      : model_(model), file_(file), config_(detail::gguf_config(model, file), file) {
    // llama.cpp rotates adjacent rows in `llama` and the two halves of a head in `qwen2` and `qwen3`. Its
    // converter permutes the rows of queries and keys to match.
    interleaved_rows_ = std::get<std::string>(*model.value("general.architecture")) == "llama";
  }

  QuantizedModel run(const ImportOptions& options) {
    const bool gpt2 = config_.architecture() == "GPT2LMHeadModel";
    detail::TransformerPlan plan =
        gpt2 ? detail::plan_gpt2(config_, options) : detail::plan_llama(config_, options);
    check(plan);
    StateDict state;
    for (const auto& place : plan.places) {
      // `check` has found every tensor of the plan, so the pointer is not null.
      const GgufTensor& from = *model_.tensor(detail::gguf_name(place.names.front()));
      Taken taken = take(place, from);
      if (is_coded(from)) add_grid(place.parameter, from, taken);
      state.set("parameters/" + place.parameter, std::move(taken.values));
    }
    const GgufTensor& table = *model_.tensor("token_embd.weight");
    // Without "output.weight", the head multiplies by the table of the embedding, so it needs the same grid.
    if (is_coded(table) && model_.tensor("output.weight") == nullptr) add_rule("lm_head", table);
    const ordered_json config{{"target", "ggml"}, {"rules", rules_}};
    return {{ModelSpec(options.name, std::move(plan.nodes)), plan.sample, plan.output, std::move(state), {}},
            {grids_.empty() ? std::string() : config.dump(), std::move(grids_)}};
  }

 private:
  /// Returns the shape of the tensor in the file. A parameter may be a part of it.
  static Shape shape_there(const detail::WeightPlace& place) {
    Shape shape = place.shape;
    if (place.outputs > 0) shape[0] = place.outputs;
    return shape;
  }

  /// Reports all mismatches in one error, before anything is built.
  void check(const detail::TransformerPlan& plan) const {
    std::vector<std::string> wrong;
    std::set<std::string> used;
    for (const auto& place : plan.places) {
      const std::string name = detail::gguf_name(place.names.front());
      const GgufTensor* found = model_.tensor(name);
      used.insert(name);
      if (found == nullptr)
        wrong.push_back(name + " is missing");
      else if (found->shape != shape_there(place))
        wrong.push_back(fmt::format("{} is {}, the keys make it {}", name, to_string(found->shape),
                                    to_string(shape_there(place))));
      else if (is_coded(*found) && found->shape.size() != 2)
        wrong.push_back(name + " has blocks but is not a matrix");
    }
    for (const auto& tensor : model_.tensors)
      if (!used.contains(tensor.name)) wrong.push_back(tensor.name.substr(0, 100) + " is unknown");
    if (wrong.empty()) return;
    const std::size_t count = wrong.size();
    if (count > 20) wrong.resize(20);
    throw FileError(file_, {},
                    fmt::format("[import] {} tensors of {} do not fit its architecture: {}{}", count, file_,
                                fmt::join(wrong, "; "), count > 20 ? "; .." : ""));
  }

  [[nodiscard]] Taken take(const detail::WeightPlace& place, const GgufTensor& from) const {
    Taken all;
    if (is_coded(from)) {
      const auto blocks =
          from.type == GgufType::q4_0 ? ggml::unpack_q4_0(from.data) : ggml::unpack_q8_0(from.data);
      all.codes = blocks.codes.to(DType::f32);
      all.scale = blocks.scale.to(DType::f32);
      all.values = detail::scaled_codes(all.codes, all.scale, Granularity::per_group(32));
    } else {
      all.values = from.data.to(DType::f32);
    }
    // Blocks lie within a row, so moving whole rows moves codes and scales alike.
    for (Tensor* each : {&all.values, &all.codes, &all.scale})
      if (each->defined()) *each = parameter_rows(place, *each);
    if (const auto bad = detail::find_not_finite({{place.parameter, all.values}}))
      throw FileError(
          file_, from.name,
          fmt::format("[import] {}: {} is {} at element {}", file_, from.name, bad->value, bad->index));
    return all;
  }

  /// Returns the parameter's part of the rows, in the order of the model.
  [[nodiscard]] Tensor parameter_rows(const detail::WeightPlace& place, const Tensor& all) const {
    if (place.outputs > 0) return all.slice(place.first, place.first + place.shape[0]).clone();
    const bool turned = interleaved_rows_ && (place.parameter.ends_with(".q_proj.weight") ||
                                              place.parameter.ends_with(".k_proj.weight"));
    if (!turned) return all;
    const std::int64_t heads =
        place.parameter.ends_with(".q_proj.weight")
            ? config_.size("num_attention_heads")
            : config_.size_or("num_key_value_heads", config_.size("num_attention_heads"));
    // `interleaved_rows` gives the model's row for each row of the file. The file is read with the inverse.
    const auto theirs = detail::interleaved_rows(heads, place.shape[0] / heads);
    std::vector<std::int64_t> ours(theirs.size());
    for (std::size_t i = 0; i < theirs.size(); ++i)
      ours.at(std::size_t(theirs[i])) = static_cast<std::int64_t>(i);
    return ops::index_select(Variable(all), 0, ours).tensor();
  }

  void add_rule(const std::string& layer, const GgufTensor& from) {
    rules_.push_back({{"pattern", layer + ".*"}, {"preset", from.type == GgufType::q4_0 ? "q4_0" : "q8_0"}});
  }
  void add_grid(const std::string& parameter, const GgufTensor& from, const Taken& taken) {
    const std::string layer = parameter.substr(0, parameter.rfind('.'));
    add_rule(layer, from);
    grids_.push_back({layer + ".weight_quantizer",
                      fmt::format("tensor '{}' ({})", from.name, name(from.type)), taken.scale, taken.codes});
  }

  const GgufModel& model_;
  const std::string& file_;
  detail::TransformerConfig config_;
  bool interleaved_rows_ = false;
  ordered_json rules_ = ordered_json::array();
  std::vector<FileGrid> grids_;
};

}  // namespace

QuantizedModel import_gguf(const GgufModel& model, const ImportOptions& options, const std::string& file) {
  return GgufImport(model, file).run(options);
}

}  // namespace fq
