#include "fakequant/layers/quantize.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/log.h"
#include "fakequant/layers/config/detail/quantizer_fields.h"
#include "fakequant/layers/config/detail/rule_fields.h"
#include "fakequant/layers/detail/placement.h"
#include "fakequant/layers/model/float_operators.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/quantizer/detail/early_grids.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq {
namespace {

using detail::MergedFields;

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
    const MergedFields weight = fields(use, {use.path + ".weight_quantizer"});
    const MergedFields output = fields(use, {use.path + ".output_quantizer"});
    std::vector<MergedFields> inputs;
    for (std::size_t i = 0; i < use.tensors.size(); ++i) inputs.push_back(input_fields(use, i));
    names_.push_back(use.path + ".input_quantizer");
    const bool has_weight = use.has_weight;
    if (has_weight) names_.push_back(use.path + ".weight_quantizer");
    if (!(has_weight && weight.switched_on()) && std::ranges::none_of(inputs, &MergedFields::switched_on))
      return;
    const Module& old = model_.at(use.path);
    auto made = factories().at(typeid(old))(old, use.tensors.size());
    auto* quant = dynamic_cast<QuantModule*>(made.get());
    FQ_CHECK(quant != nullptr, "quantize", "what is registered for '{}' is no QuantModule", use.path);
    quant->set_target(config_.target);
    model_.replace(use.path, made);
    if (quant->weight_quantizer() != nullptr) place_weight(*made, weight, use.path, quant->weight_axis());
    if (quant->output_quantizer() != nullptr && output.switched_on())
      made->replace("output_quantizer", make_quantizer(output, use.path + ".output_quantizer"));
    for (std::size_t i = 0; i < use.tensors.size(); ++i) place_input(*made, use, i, inputs[i]);
  }

  MergedFields fields(const detail::QuantizableUse& use, const std::vector<std::string>& paths) {
    return detail::fields_for(config_, model_.at(use.path).type(), paths, matched_);
  }

  MergedFields input_fields(const detail::QuantizableUse& use, std::size_t i) {
    std::vector<std::string> paths{use.path + ".input_quantizer"};
    if (i > 0) paths.push_back(input_name(use.path, i));
    return fields(use, paths);
  }

  static std::string input_name(const std::string& path, std::size_t i) {
    return path + (i == 0 ? ".input_quantizer" : ".input_quantizer_" + std::to_string(i));
  }

  std::shared_ptr<TensorQuantizer> make_one(const QuantFields& fields, const std::string& name) const {
    QuantizerSettings settings;
    settings.name = name;
    settings.arithmetic = config_.arithmetic;
    settings.pow2 = config_.pow2;
    detail::apply(fields, settings);
    return std::make_shared<TensorQuantizer>(std::move(settings));
  }

  std::shared_ptr<TensorQuantizer> make_quantizer(const MergedFields& fields, const std::string& name) const {
    return detail::at_place(fields.place, [&]() -> std::shared_ptr<TensorQuantizer> {
      if (fields.all.sequence.empty()) return make_one(fields.all, name);
      std::vector<std::shared_ptr<TensorQuantizer>> parts;
      for (const auto& part : fields.all.sequence)
        parts.push_back(make_one(part, fmt::format("{}.{}", name, parts.size())));
      auto out = std::make_shared<SequentialQuantizer>(std::move(parts));
      out->set_name(name);
      return out;
    });
  }

  void place_weight(Module& made, MergedFields fields, const std::string& path, int axis) {
    const std::string name = path + ".weight_quantizer";
    if (!fields.by_user.axis && keeps_one_axis(fields.all)) {
      fields.all.axis.reset();
      if (axis >= 0) fields.all.axis = Axes(axis);
    }
    if (fields.switched_on()) return made.replace("weight_quantizer", make_quantizer(fields, name));
    auto* quantizer = dynamic_cast<QuantModule&>(made).weight_quantizer();
    quantizer->set_enabled(false);
    quantizer->set_name(name);
  }

  static bool keeps_one_axis(const QuantFields& fields) {
    return fields.axis && fields.axis->has_value() && (*fields.axis)->values().size() == 1;
  }

  /// One quantizer for each tensor and set of fields: the first reader makes it, the others share it.
  void place_input(Module& made, const detail::QuantizableUse& use, std::size_t i,
                   const MergedFields& fields) {
    const std::string name = input_name(use.path, i);
    const auto slot = dynamic_cast<QuantModule&>(made).input_quantizers()[i];
    if (!fields.switched_on()) {
      slot->set_enabled(false);
      slot->set_name(name);
      return;
    }
    auto& shared = shared_[use.tensors[i].group];
    auto known = std::ranges::find(shared, fields.all, &Shared::fields);
    if (known == shared.end())
      known = shared.insert(known, {fields.all, make_input(fields, use.tensors[i], name)});
    made.replace(name.substr(use.path.size() + 1), known->quantizer);
  }

  std::shared_ptr<TensorQuantizer> make_input(const MergedFields& fields, const detail::UsedTensor& tensor,
                                              const std::string& name) {
    auto quantizer = make_quantizer(activation_fields(fields, tensor, name), name);
    set_algorithm(*quantizer, fields.all);
    const QuantDescriptor& made_of = quantizer->descriptor();
    const bool plain = config_.target == Target::ort && fields.all.sequence.empty() && !fields.has_blocks();
    const bool offset = plain && made_of.format().is_integer() && !made_of.is_unsigned();
    quantizer->update([&](QuantizerSettings& settings) {
      settings.zero_point = offset ? 128 : 0;
      settings.may_become_unsigned = plain && !fields.by_user.is_unsigned;
    });
    return quantizer;
  }

  /// The calib_method of a rule is more specific than the algorithm of the config.
  void set_algorithm(TensorQuantizer& quantizer, const QuantFields& fields) const {
    const auto parts = quantizer_parts(quantizer);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const QuantFields& own = fields.sequence.empty() ? fields : fields.sequence[i];
      if (!own.calib_method) set_calib_method(*parts[i], config_.algorithm);
    }
  }

  /// By the target unsigned where nothing is negative; the user's word wins, with a warning.
  MergedFields activation_fields(MergedFields fields, const detail::UsedTensor& tensor,
                                 const std::string& name) {
    if (!fields.all.sequence.empty()) return fields;
    const NumBits bits = fields.all.num_bits.value_or(std::nullopt).value_or(NumBits());
    const bool wanted =
        config_.target == Target::ort && tensor.non_negative && bits.is_integer() && !fields.has_blocks();
    const auto& by_user = fields.by_user.is_unsigned;
    if (!by_user) {
      if (wanted) fields.all.is_unsigned = true;
    } else if (config_.target != Target::none && by_user->has_value() && **by_user != wanted) {
      warnings_.push_back(fmt::format("'{}' is {} as asked, though the target {} would have it otherwise",
                                      name, wanted ? "signed" : "unsigned", fq::name(config_.target)));
    }
    return fields;
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

  struct Shared {
    QuantFields fields;
    std::shared_ptr<TensorQuantizer> quantizer;
  };

  Module& model_;
  const QuantConfig& config_;
  const Shape& input_shape_;
  TraceGraph graph_;
  std::vector<bool> matched_;
  std::vector<std::string> names_, warnings_;
  std::map<int, std::vector<Shared>> shared_;  // by group of tensors
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
