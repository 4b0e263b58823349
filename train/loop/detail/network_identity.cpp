#include "fakequant/train/loop/detail/network_identity.h"

#include <nlohmann/json.hpp>

#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/loop/detail/sample_notes.h"

namespace fq::detail {

using nlohmann::json;

namespace {

/// Throws json::exception where a key that others read is of another type than they take.
void check_types(const json& identity) {
  const std::string text;
  const json task = identity.value("task", json::object());
  for (const char* key : {"loss", "metrics"}) (void)task.value(key, text);
  (void)identity.value("tokenizer", text);
  (void)identity.at("model").value("name", text);
  if (const json& config = identity.at("quantization"); config.is_object())
    (void)config.value("preset", text);
}

}  // namespace

json network_identity(const ModelSpec& spec, const Shape& sample_shape, std::int64_t classes) {
  return {{"model", parse_json<json>(spec.text())},
          {"sample_shape", sample_shape},
          {"classes", classes},
          {"folded", false},
          {"quantization", nullptr}};
}

Shape input_shape_of(const json& identity, std::int64_t batch) {
  Shape shape = whole_values<std::int64_t>(identity.at("sample_shape"));
  shape.insert(shape.begin(), batch);
  return shape;
}

std::shared_ptr<Module> first_network(const json& identity, const ModelSpec& spec, std::uint64_t seed) {
  BuildOptions options;
  options.seed = seed;
  options.dense = identity.value("dense", false);
  return build_model(spec, whole_values<std::int64_t>(identity.at("sample_shape")),
                     whole_value<std::int64_t>(identity.at("classes")), options);
}

std::shared_ptr<Module> network_again(const json& identity) {
  check_types(identity);
  check_notes_of(identity);
  auto module = first_network(identity, ModelSpec::parse(identity.at("model").dump()), 0);
  const Shape shape = input_shape_of(identity, 1);
  if (identity.at("folded").get<bool>()) static_cast<void>(fold_batch_norm(*module, shape));
  if (const json& config = identity.at("quantization"); !config.is_null())
    static_cast<void>(quantize(*module, QuantConfig::from_json(config), shape));
  return module;
}

}  // namespace fq::detail
