#include "fakequant/layers/quantize.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/log.h"
#include "fakequant/core/text.h"
#include "fakequant/layers/config/detail/quantizer_fields.h"
#include "fakequant/layers/config/detail/rule_fields.h"
#include "fakequant/layers/detail/placement.h"
#include "fakequant/layers/model/float_operators.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/quantizer/detail/early_grids.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq {
namespace {

using detail::Fields;
using detail::has_blocks;
using detail::switched_on;
using nlohmann::json;

std::map<std::type_index, QuantFactory>& factories() {
  static std::map<std::type_index, QuantFactory> table;
  return table;
}

template <class Float>
void register_inputs() {
  register_quant_module(
      typeid(Float), [](const Module& layer, std::size_t inputs) -> std::shared_ptr<Module> {
        return std::make_shared<QuantInputs<Float>>(static_cast<const Float&>(layer), inputs);
      });
}

void register_defaults() {
  static const bool once = [] {
    const auto own = factories();  // what users registered before stays
    register_quant_module<Linear, QuantLinear>();
    register_quant_module<Conv1d, QuantConv1d>();
    register_quant_module<Conv2d, QuantConv2d>();
    register_quant_module<ConvTranspose2d, QuantConvTranspose2d>();
    register_inputs<Add>();
    register_inputs<Concat>();
    register_inputs<AvgPool2d>();
    register_inputs<GlobalAvgPool2d>();
    for (const auto& [type, make] : own) factories()[type] = make;
    return true;
  }();
  (void)once;
}

class Quantizing {
 public:
  Quantizing(Module& model, const QuantConfig& config, const Shape& input_shape)
      : model_(model),
        config_(config),
        input_shape_(input_shape),
        graph_(trace(model, input_shape)),
        matched_(config.rules.size(), false) {}

  std::vector<std::string> run() {
    for (const auto& use : detail::quantizable_uses(model_, graph_, config_.target, is_quantizable))
      place(use);
    for (std::size_t i = 0; i < matched_.size(); ++i)
      if (!matched_[i] && config_.rules[i].by_user) warn_unmatched(config_.rules[i].pattern);
    check_products(trace(model_, input_shape_));  // refuses what does not fit before any data is seen
    for (const auto& warning : warnings_) log(LogLevel::warning, warning);
    warn_floats();
    return std::move(warnings_);
  }

 private:
  static bool is_quantizable(const Module& module) { return factories().contains(typeid(module)); }

  void place(const detail::QuantizableUse& use) {
    const Fields weight = fields(use, {use.path + ".weight_quantizer"});
    const Fields output = fields(use, {use.path + ".output_quantizer"});
    std::vector<Fields> inputs;
    for (std::size_t i = 0; i < use.tensors.size(); ++i) inputs.push_back(input_fields(use, i));
    names_.push_back(use.path + ".input_quantizer");
    const bool has_weight = use.has_weight;
    if (has_weight) names_.push_back(use.path + ".weight_quantizer");
    if (!(has_weight && switched_on(weight)) && std::ranges::none_of(inputs, switched_on)) return;
    const Module& old = model_.at(use.path);
    auto made = factories().at(typeid(old))(old, use.tensors.size());
    auto* quant = dynamic_cast<QuantModule*>(made.get());
    FQ_CHECK(quant != nullptr, "quantize", "what is registered for '{}' is no QuantModule", use.path);
    quant->set_target(config_.target);
    model_.replace(use.path, made);
    if (quant->weight_quantizer() != nullptr) place_weight(*made, weight, use.path, quant->weight_axis());
    if (quant->output_quantizer() != nullptr && switched_on(output))
      made->replace("output_quantizer", make_quantizer(output.all, use.path + ".output_quantizer"));
    for (std::size_t i = 0; i < use.tensors.size(); ++i) place_input(*made, use, i, inputs[i]);
  }

  Fields fields(const detail::QuantizableUse& use, const std::vector<std::string>& paths) {
    return detail::fields_for(config_, model_.at(use.path).type(), paths, matched_);
  }

  Fields input_fields(const detail::QuantizableUse& use, std::size_t i) {
    std::vector<std::string> paths{use.path + ".input_quantizer"};
    if (i > 0) paths.push_back(input_name(use.path, i));
    return fields(use, paths);
  }

  static std::string input_name(const std::string& path, std::size_t i) {
    return path + (i == 0 ? ".input_quantizer" : ".input_quantizer_" + std::to_string(i));
  }

  std::shared_ptr<TensorQuantizer> make_one(json fields, const std::string& name) {
    QuantizerSettings settings;
    settings.name = name;
    settings.arithmetic = config_.arithmetic;
    settings.pow2 = config_.pow2;
    detail::set_own_fields(settings, fields);
    settings.descriptor = QuantDescriptor::from_dict(detail::without_nulls(std::move(fields)));
    return std::make_shared<TensorQuantizer>(std::move(settings));
  }

  std::shared_ptr<TensorQuantizer> make_quantizer(json fields, const std::string& name) {
    if (!fields.contains("sequence")) return make_one(std::move(fields), name);
    FQ_CHECK(fields["sequence"].is_array(), "quantize", "'sequence' of '{}' is {}: give a list of fields",
             name, fields["sequence"].dump());
    std::vector<std::shared_ptr<TensorQuantizer>> parts;
    for (const auto& part : fields["sequence"]) {
      FQ_CHECK(part.is_object(), "quantize", "'sequence' of '{}' has {}: give objects of fields", name,
               part.dump());
      parts.push_back(make_one(part, fmt::format("{}.{}", name, parts.size())));
    }
    auto out = std::make_shared<SequentialQuantizer>(std::move(parts));
    out->set_name(name);
    return out;
  }

  void place_weight(Module& made, const Fields& fields, const std::string& path, int axis) {
    const std::string name = path + ".weight_quantizer";
    json all = fields.all;
    if (all.contains("axis") && all["axis"].is_number() && !fields.by_user.contains("axis")) {
      if (axis >= 0)
        all["axis"] = axis;
      else
        all.erase("axis");
    }
    if (switched_on(fields)) return made.replace("weight_quantizer", make_quantizer(std::move(all), name));
    auto* quantizer = dynamic_cast<QuantModule&>(made).weight_quantizer();
    quantizer->set_enabled(false);
    quantizer->set_name(name);
  }

  /// One quantizer for each tensor and set of fields: the first reader makes it, the others share it.
  void place_input(Module& made, const detail::QuantizableUse& use, std::size_t i, const Fields& fields) {
    const std::string name = input_name(use.path, i);
    const auto slot = dynamic_cast<QuantModule&>(made).input_quantizers()[i];
    if (!switched_on(fields)) {
      slot->set_enabled(false);
      slot->set_name(name);
      return;
    }
    const auto key = std::pair(use.tensors[i].group, fields.all.dump());
    if (const auto known = shared_.find(key); known != shared_.end()) {
      made.replace(name.substr(use.path.size() + 1), known->second);
      return;
    }
    auto quantizer = make_quantizer(activation_fields(fields, use.tensors[i], name), name);
    set_algorithm(*quantizer, fields.all);
    const QuantDescriptor& made_of = quantizer->descriptor();
    const bool plain =
        config_.target == Target::ort && !fields.all.contains("sequence") && !has_blocks(fields.all);
    const bool offset = plain && made_of.format().is_integer() && !made_of.is_unsigned();
    quantizer->update([&](QuantizerSettings& settings) {
      settings.zero_point = offset ? 128 : 0;
      settings.may_become_unsigned = plain && !fields.by_user.contains("unsigned");
    });
    made.replace(name.substr(use.path.size() + 1), quantizer);
    shared_[key] = quantizer;
  }

  /// The calib_method of a rule is more specific than the algorithm of the config.
  void set_algorithm(TensorQuantizer& quantizer, const json& fields) const {
    const auto parts = quantizer_parts(quantizer);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const json& own = fields.contains("sequence") ? fields["sequence"][i] : fields;
      if (!own.contains("calib_method")) set_calib_method(*parts[i], config_.algorithm);
    }
  }

  json activation_fields(const Fields& fields, const detail::UsedTensor& tensor, const std::string& name) {
    json all = fields.all;
    if (all.contains("sequence")) return all;
    const bool integer = !all.contains("num_bits") || all["num_bits"].is_number();
    const bool wanted =
        config_.target == Target::ort && tensor.non_negative && integer && !has_blocks(fields.all);
    if (!fields.by_user.contains("unsigned")) {
      if (wanted) all["unsigned"] = true;
    } else if (config_.target != Target::none && fields.by_user["unsigned"].is_boolean() &&
               fields.by_user["unsigned"].get<bool>() != wanted) {
      warnings_.push_back(fmt::format("'{}' is {} as asked, though the target {} would have it otherwise",
                                      name, wanted ? "signed" : "unsigned", fq::name(config_.target)));
    }
    return all;
  }

  /// A layer whose input and weight are both dequantized multiplies floats, not codes.
  void check_products(const TraceGraph& quantized) {
    std::map<std::string, std::vector<std::string>> formats;
    for (const auto& node : quantized.nodes) {
      if (node.op != "dequantize") continue;
      const auto& made = quantized.nodes[static_cast<std::size_t>(quantized.input(node, 0).producer)];
      if (made.op == "quantize") formats[node.path].push_back(made.attribute<std::string>("format"));
    }
    for (const auto& [path, module] : model_.named_modules()) {
      const auto* quant = dynamic_cast<const QuantModule*>(module);
      const auto& both = formats[path];
      if (quant == nullptr || quant->weight_quantizer() == nullptr || both.size() < 2) continue;
      auto message = fmt::format(
          "'{}' multiplies dequantized floats: no engine multiplies codes of {} with such scales and formats",
          path, fmt::join(both, " and "));
      FQ_CHECK(!config_.strict, "quantize", "{}; change its rules, or leave strict out", message);
      warnings_.push_back(std::move(message));
    }
  }

  /// Where layers are integers that the engine is expected to multiply as such.
  void warn_floats() {
    if (config_.target != Target::ort || !has_byte_layers()) return;
    const auto floats = float_operators(model_, input_shape_, config_.target);
    if (floats.empty()) return;
    log(LogLevel::warning,
        fmt::format("ONNX Runtime computes {} in floats, where codes may differ by one near a tie: {}",
                    floats.size() == 1 ? "an operator" : fmt::format("{} operators", floats.size()),
                    describe(floats)));
  }

  bool has_byte_layers() {
    const auto in_bytes = [](const TensorQuantizer& q) {
      return q.enabled() && detail::has_byte_codes(q.descriptor().format());
    };
    return std::ranges::any_of(model_.named_modules(), [&](const auto& entry) {
      const auto* quant = dynamic_cast<const QuantModule*>(entry.second);
      return quant != nullptr && quant->weight_quantizer() != nullptr &&
             in_bytes(*quant->weight_quantizer()) && in_bytes(*quant->input_quantizers()[0]);
    });
  }

  void warn_unmatched(const std::string& pattern) {
    warnings_.push_back(fmt::format("the pattern '{}' matches no quantizer: the nearest are {}", pattern,
                                    fmt::join(detail::nearest(pattern, names_, 3), ", ")));
  }

  Module& model_;
  const QuantConfig& config_;
  const Shape& input_shape_;
  TraceGraph graph_;
  std::vector<bool> matched_;
  std::vector<std::string> names_, warnings_;
  std::map<std::pair<int, std::string>, std::shared_ptr<TensorQuantizer>> shared_;
};

}  // namespace

void register_quant_module(std::type_index type, QuantFactory make) { factories()[type] = std::move(make); }

std::vector<std::string> quantize(Module& model, const QuantConfig& config, const Shape& input_shape) {
  register_defaults();
  for (const auto& [path, module] : model.named_modules())
    FQ_CHECK(dynamic_cast<QuantModule*>(module) == nullptr, "quantize", "'{}' is quantized already", path);
  auto names = Quantizing(model, config, input_shape).run();
  model.to(model.device());  // the quantizers too
  return names;
}

void check_one_target(Module& model) { (void)target_of(model); }

Target target_of(Module& model) {
  const QuantModule* first = nullptr;
  std::string first_path;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* quant = dynamic_cast<QuantModule*>(module);
    if (quant == nullptr) continue;
    if (first == nullptr) {
      first = quant;
      first_path = path;
    }
    FQ_CHECK(quant->target() == first->target(), "quantize",
             "'{}' is quantized for the target {}, '{}' for {}: one engine runs the whole model, give its "
             "parts one target",
             first_path, name(first->target()), path, name(quant->target()));
  }
  return first == nullptr ? Target::none : first->target();
}

}  // namespace fq
