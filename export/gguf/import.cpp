#include "fakequant/export/gguf/import.h"

#include <nlohmann/json.hpp>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/gguf/detail/config.h"
#include "fakequant/export/gguf/detail/llama.h"
#include "fakequant/export/quantized/detail/scaled_codes.h"
#include "fakequant/export/transformers/detail/plan.h"
#include "fakequant/train/loop/detail/finite.h"

namespace fq {
namespace {

using nlohmann::ordered_json;

bool is_coded(const GgufTensor& tensor) {
  return tensor.type == GgufType::q4_0 || tensor.type == GgufType::q8_0;
}

/// A tensor in a place of ours: its values, and of blocks its codes and scales.
struct Taken {
  Tensor values, codes, scale;
};

class GgufImport {
 public:
  GgufImport(const GgufModel& model, const std::string& file)
      : model_(model), file_(file), config_(detail::gguf_config(model, file), file) {
    turns_neighbours_ = std::get<std::string>(*model.value("general.architecture")) == "llama";
  }

  QuantizedModel run(const ImportOptions& options) {
    const bool gpt2 = config_.architecture() == "GPT2LMHeadModel";
    detail::TransformerPlan plan =
        gpt2 ? detail::plan_gpt2(config_, options) : detail::plan_llama(config_, options);
    check(plan);
    StateDict state;
    for (const auto& place : plan.places) {
      const GgufTensor& from = *model_.tensor(detail::gguf_name(place.names.front()));
      Taken taken = take(place, from);
      if (is_coded(from)) add_grid(place.parameter, from, taken);
      state.set("parameters/" + place.parameter, std::move(taken.values));
    }
    const GgufTensor& table = *model_.tensor("token_embd.weight");
    if (is_coded(table) && model_.tensor("output.weight") == nullptr) add_rule("lm_head", table);
    const ordered_json spec{{"name", options.name}, {"nodes", std::move(plan.nodes)}};
    const ordered_json config{{"target", "ggml"}, {"rules", rules_}};
    return {{ModelSpec::parse(spec.dump()), plan.sample, plan.output, std::move(state), {}},
            {grids_.empty() ? std::string() : config.dump(), std::move(grids_)}};
  }

 private:
  /// Rows of the file, of which a place may be a part.
  static Shape shape_there(const detail::WeightPlace& place) {
    Shape shape = place.shape;
    if (place.outputs > 0) shape[0] = place.outputs;
    return shape;
  }

  /// All that does not fit is told at once, before anything is made.
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
        wrong.push_back(name + " has blocks, and is no matrix");
    }
    for (const auto& tensor : model_.tensors)
      if (!used.contains(tensor.name)) wrong.push_back(tensor.name.substr(0, 100) + " has no place");
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
    for (Tensor* each : {&all.values, &all.codes, &all.scale})
      if (each->defined()) *each = rows_of(place, *each);
    if (const auto bad = detail::find_not_finite({{place.parameter, all.values}}))
      throw FileError(
          file_, from.name,
          fmt::format("[import] {}: {} is {} at element {}", file_, from.name, bad->value, bad->index));
    return all;
  }

  /// The place's part of the rows, in our order.
  [[nodiscard]] Tensor rows_of(const detail::WeightPlace& place, const Tensor& all) const {
    if (place.outputs > 0) return all.slice(place.first, place.first + place.shape[0]).clone();
    const bool turned = turns_neighbours_ && (place.parameter.ends_with(".q_proj.weight") ||
                                              place.parameter.ends_with(".k_proj.weight"));
    if (!turned) return all;
    const std::int64_t heads =
        place.parameter.ends_with(".q_proj.weight")
            ? config_.size("num_attention_heads")
            : config_.size_or("num_key_value_heads", config_.size("num_attention_heads"));
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
  bool turns_neighbours_ = false;
  ordered_json rules_ = ordered_json::array();
  std::vector<FileGrid> grids_;
};

}  // namespace

QuantizedModel import_gguf(const GgufModel& model, const ImportOptions& options, const std::string& file) {
  return GgufImport(model, file).run(options);
}

}  // namespace fq
