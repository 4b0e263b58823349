#include "fakequant/layers/quantize.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/log.h"
#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/config/detail/merged_rules.h"
#include "fakequant/layers/detail/float_products.h"
#include "fakequant/layers/detail/layer_roles.h"
#include "fakequant/layers/detail/placement.h"
#include "fakequant/layers/detail/quantizer_maker.h"
#include "fakequant/layers/detail/target_engine.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/modules/quant_attention.h"
#include "fakequant/layers/modules/quant_recurrent.h"

namespace fq {
namespace {

using detail::MergedRules;

// The first input has no number, as in ModelOpt.
std::string input_name(const std::string& path, std::size_t i) {
  return path + (i == 0 ? ".input_quantizer" : ".input_quantizer_" + std::to_string(i));
}

void switch_off(TensorQuantizer& quantizer, std::string name) {
  quantizer.set_enabled(false);
  quantizer.set_name(std::move(name));
}

class Quantizing {
 public:
  Quantizing(Module& model, const QuantConfig& config, const Shape& input_shape, NetworkPart* part)
      : model_(model),
        config_(config),
        input_shape_(input_shape),
        part_(part),
        maker_(config),
        engine_(detail::target_engine(config.target)),
        // The float model is traced once, before any module is replaced.
        graph_(trace(model, input_shape)),
        edges_(detail::edge_layers(graph_)),
        residual_sums_(detail::residual_sums(graph_)),
        matched_(config.rules.size(), false) {
    // The edges of an inner part are not the edges of the network.
    if (part != nullptr && !part->has_first) edges_.first.clear();
    if (part != nullptr && !part->has_last) edges_.last.clear();
  }

  std::vector<std::string> run() {
    FQ_CHECK(
        !engine_.profile().rounds_inputs || config_.arithmetic == Arithmetic::deployed, "quantize",
        "the target {} multiplies codes, but arithmetic reference has floats: use deployed, or target none",
        engine_.profile().name);
    const auto quantizable = [this](const Module& module) { return engine_.is_quantizable(module); };
    for (const auto& use : detail::quantizable_uses(model_, graph_, engine_.quantizes_sums(), quantizable))
      engine_.profile().rounds_inputs ? place_for_engine(use) : place(use);
    if (names_.empty()) report_nothing_quantized(quantizable(model_));
    engine_.replace_functions(model_, graph_);
    report_unmatched();
    const TraceGraph quantized = trace(model_, input_shape_);  // finds shape errors before any data is seen
    check_products(quantized);
    // Deployed networks fold these norms into the layer. The sums of the layer get the bits of the folded
    // layer.
    for (const auto& pair : foldable_batch_norms(model_, quantized))
      dynamic_cast<BatchNorm&>(model_.at(pair.norm)).set_folds_into_layer(true);
    for (auto& warning : engine_.fit_weights(model_)) warnings_.push_back(std::move(warning));
    for (const auto& warning : warnings_) log(LogLevel::warning, warning);
    engine_.log_float_operators(model_, input_shape_);
    return std::move(warnings_);
  }

 private:
  void place(const detail::QuantizableUse& use) {
    if (dynamic_cast<const Recurrent*>(&model_.at(use.path)) != nullptr) return place_recurrent(use);
    if (detail::is_attention(model_.at(use.path))) return place_attention(use);
    const MergedRules weight = fields(use, {use.path + ".weight_quantizer"});
    const MergedRules output = fields(use, {use.path + ".output_quantizer"});
    std::vector<MergedRules> inputs;
    for (std::size_t i = 0; i < use.tensors.size(); ++i) inputs.push_back(input_fields(use, i));
    // Names of all possible quantizers, for suggestions when a pattern matches nothing.
    names_.push_back(use.path + ".input_quantizer");
    const bool has_weight = use.has_weight;
    if (has_weight) names_.push_back(use.path + ".weight_quantizer");
    // No rule enables a quantizer, so the float module remains.
    if (!(has_weight && weight.is_enabled()) && std::ranges::none_of(inputs, &MergedRules::is_enabled))
      return;
    const Module& old = model_.at(use.path);
    auto made = engine_.counterpart(old, use.tensors.size(), {});
    auto* quant = dynamic_cast<QuantModule*>(made.get());
    FQ_CHECK(quant != nullptr, "quantize", "the module registered for '{}' is not a QuantModule", use.path);
    model_.replace(use.path, made);
    if (quant->weight_quantizer() != nullptr) place_weight(*made, weight, use.path, quant->weight_axis());
    if (quant->output_quantizer() != nullptr && output.is_enabled())
      made->replace("output_quantizer", maker_.make(output, use.path + ".output_quantizer"));
    for (std::size_t i = 0; i < use.tensors.size(); ++i) place_input(*made, use, i, inputs[i]);
  }

  /// Places quantizers on linear layers and tables, for engines that round inputs at run time.
  void place_for_engine(const detail::QuantizableUse& use) {
    const MergedRules weight = fields(use, {use.path + ".weight_quantizer"});
    const MergedRules input = fields(use, {use.path + ".input_quantizer"});
    names_.push_back(use.path + ".weight_quantizer");
    if (!use.tensors.empty()) names_.push_back(use.path + ".input_quantizer");
    if (!weight.is_enabled()) return;
    const std::string name = use.path + ".weight_quantizer";
    // Engines of this kind have weights [out, in] with the channels along axis 0.
    const auto quantizer = maker_.weight(weight, name, 0);
    const Module& old = model_.at(use.path);
    const QuantDescriptor& descriptor = quantizer->descriptor();
    if (std::string why = engine_.reason_for_floats(use.path, old, descriptor, input); !why.empty()) {
      FQ_CHECK(!config_.strict, "quantize", "{}; switch it off by a rule, or leave strict out", why);
      warnings_.push_back(std::move(why));
      return;
    }
    auto made = engine_.counterpart(old, use.tensors.size(), input);
    model_.replace(use.path, made);
    // A rule may have chosen a scheme already (binary). Otherwise the engine's storage decides.
    if (quantizer->params().weight_scheme == &detail::plain_weights())
      quantizer->update(
          [&](QuantParams& params) { params.weight_scheme = &engine_.weight_scheme(descriptor); });
    made->replace("weight_quantizer", quantizer);
    for (std::size_t i = 0; i < use.tensors.size(); ++i) place_input(*made, use, i, input);
  }

  void place_recurrent(const detail::QuantizableUse& use) {
    const Module& old = model_.at(use.path);
    auto made = engine_.counterpart(old, 1, {});
    auto& quant = dynamic_cast<QuantModule&>(*made);
    bool any = false;
    for (const auto& [name, slot] : made->named_slots()) {
      auto* matrix = dynamic_cast<QuantMatrix*>(slot->module.get());
      if (matrix == nullptr) continue;
      const std::string path = use.path + "." + name;
      const MergedRules weight = fields(use, {path + ".weight_quantizer"});
      names_.push_back(path + ".weight_quantizer");
      matrix->set_target(config_.target);
      place_weight(*matrix, weight, path, matrix->weight_axis());
      any = any || weight.is_enabled();
    }
    for (const auto& input : quant.input_quantizers()) any = place_dynamic(use, *input) || any;
    // Without an enabled quantizer the float layer remains.
    if (any) model_.replace(use.path, made);
  }

  void place_attention(const detail::QuantizableUse& use) {
    std::vector<MergedRules> all;
    for (const auto& name : QuantAttention::quantizer_names()) {
      names_.push_back(use.path + "." + name);
      all.push_back(fields(use, {names_.back()}));
    }
    if (std::ranges::none_of(all, &MergedRules::is_enabled)) return;
    auto made = engine_.counterpart(model_.at(use.path), 1, {});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string& name = QuantAttention::quantizer_names()[i];
      const bool probabilities = name == "softmax_quantizer";
      // Probabilities are at most 1, so their range needs no calibration.
      if (probabilities && !all[i].all.amax && !all[i].has_blocks()) all[i].all.amax = Amax(1.0);
      const std::string path = use.path + "." + name;
      if (all[i].is_enabled())
        made->replace(name, maker_.input(all[i], {-1, probabilities}, path, warnings_));
      else
        switch_off(dynamic_cast<TensorQuantizer&>(made->at(name)), path);
    }
    model_.replace(use.path, made);
  }

  /// Enables the dynamic input quantizer of a recurrent layer, if the engine supports its fields: 8 bits,
  /// with a range for each sample unless a user gives an axis. Otherwise the layer reads floats.
  bool place_dynamic(const detail::QuantizableUse& use, TensorQuantizer& quantizer) {
    const std::string name = use.path + ".input_quantizer";
    MergedRules given = fields(use, {name});
    names_.push_back(name);
    quantizer.set_name(name);
    const NumBits bits = given.all.num_bits.value_or(std::nullopt).value_or(NumBits());
    const bool fits = engine_.multiplies_recurrent_codes() && config_.arithmetic == Arithmetic::deployed &&
                      bits == NumBits(8) && !given.has_blocks() && given.all.sequence.empty();
    if (!given.is_enabled() || !fits) {
      if (given.is_enabled() && engine_.multiplies_recurrent_codes())
        warnings_.push_back(
            fmt::format("'{}' stays off: an LSTM multiplies integers only if its input has 8 "
                        "bits without blocks. Its weights are still quantized",
                        name));
      return false;
    }
    // DynamicQuantizeLSTM of ONNX Runtime: uint8 inputs with a range from each input.
    PartialQuantParams fields = given.all;
    fields.axis = given.by_user.axis ? given.by_user.axis : std::optional(std::optional(Axes(0)));
    fields.is_unsigned = true;
    fields.dynamic = true;
    fields.learn_amax = std::nullopt;
    quantizer.update([&](QuantParams& params) { detail::apply(fields, params); });
    return true;
  }

  /// Merges the rules that name a layer by its path or by its role in the graph.
  MergedRules fields(const detail::QuantizableUse& use, std::vector<std::string> paths) {
    std::vector<std::string> names = edges_.role_names(use.path);
    if (!use.has_weight && !multiplies(use.path)) names.emplace_back("@sums");
    if (residual_sums_.contains(use.path)) names.emplace_back("@residual");
    for (const auto& name : names)
      for (std::size_t i = 0, count = paths.size(); i < count; ++i)
        // "@first.weight_quantizer" next to "conv1.weight_quantizer": rules may name the role.
        if (paths[i].starts_with(use.path)) paths.push_back(name + paths[i].substr(use.path.size()));
    return detail::merge_rules(config_, model_.at(use.path).type(), paths, matched_);
  }

  /// Whether the module is a product of two activations.
  bool multiplies(const std::string& path) {
    const Module& module = model_.at(path);
    return detail::is_attention(module) || traits(module.type()).is_product;
  }

  MergedRules input_fields(const detail::QuantizableUse& use, std::size_t i) {
    std::vector<std::string> paths{use.path + ".input_quantizer"};
    // Rules for input_quantizer apply to all inputs of a layer.
    if (i > 0) paths.push_back(input_name(use.path, i));
    return fields(use, paths);
  }

  void place_weight(Module& made, const MergedRules& fields, const std::string& path, int axis) {
    const std::string name = path + ".weight_quantizer";
    if (fields.is_enabled())
      made.replace("weight_quantizer", maker_.weight(fields, name, axis));
    else
      switch_off(*dynamic_cast<QuantModule&>(made).weight_quantizer(), name);
  }

  /// Shares one quantizer for each tensor and set of fields: the first reader makes it.
  void place_input(Module& made, const detail::QuantizableUse& use, std::size_t i,
                   const MergedRules& fields) {
    const std::string name = input_name(use.path, i);
    if (!fields.is_enabled())
      return switch_off(*dynamic_cast<QuantModule&>(made).input_quantizers()[i], name);
    // A tensor and its views after operators that only move values form one group.
    auto& shared = shared_[use.tensors[i].group];
    auto known = std::ranges::find(shared, fields.all, &Shared::fields);
    if (known == shared.end())
      known = shared.insert(known, {fields.all, maker_.input(fields, use.tensors[i], name, warnings_)});
    made.replace(name.substr(use.path.size() + 1), known->quantizer);
  }

  void check_products(const TraceGraph& quantized) {
    for (auto& message : detail::float_products(model_, quantized)) {
      FQ_CHECK(!config_.strict, "quantize", "{}; change its rules, or leave strict out", message);
      warnings_.push_back(std::move(message));
    }
  }

  /// Reports that no rule applied. `lone`: the model is itself a layer, with no parent to replace it in.
  void report_nothing_quantized(bool lone) {
    FQ_CHECK(!lone, "quantize",
             "the model is a single {}, and quantize replaces layers within a model: wrap it in a "
             "Sequential",
             model_.type());
    warnings_.push_back(
        fmt::format("nothing is quantized: the model has no layer that can be quantized for "
                    "the target {}",
                    name(config_.target)));
  }

  void report_unmatched() {
    for (std::size_t i = 0; i < matched_.size(); ++i) {
      const QuantRule& rule = config_.rules[i];
      // Rules of presets may match nothing: a network may lack such layers.
      if (matched_[i] || !rule.by_user || rule.may_match_nothing) continue;
      if (part_ != nullptr)
        part_->unmatched.push_back(rule.pattern);
      else
        warn_unmatched(rule.pattern);
    }
    if (part_ != nullptr) part_->names = names_;
  }

  /// Roles may match nothing: an embedding at an edge has no quantizers, and not all networks have residuals.
  void warn_unmatched(const std::string& pattern) {
    for (const char* name : {"@first.", "@last.", "@sums.", "@residual."})
      if (pattern.starts_with(name)) return;
    warnings_.push_back(fmt::format("the pattern '{}' matches no quantizer: the nearest are {}", pattern,
                                    fmt::join(detail::nearest(pattern, names_, 3), ", ")));
  }

  struct Shared {
    PartialQuantParams fields;
    std::shared_ptr<TensorQuantizer> quantizer;
  };

  Module& model_;
  const QuantConfig& config_;
  const Shape& input_shape_;
  NetworkPart* part_;
  detail::QuantizerMaker maker_;
  const detail::TargetEngine& engine_;
  TraceGraph graph_;
  detail::EdgeLayers edges_;
  std::set<std::string> residual_sums_;
  std::vector<bool> matched_;
  std::vector<std::string> names_, warnings_;
  std::map<int, std::vector<Shared>> shared_;  // by group of tensors
};

std::vector<std::string> quantize_checked(Module& model, const QuantConfig& config, const Shape& input_shape,
                                          NetworkPart* part) {
  for (const auto& [path, module] : model.named_modules())
    FQ_CHECK(dynamic_cast<QuantModule*>(module) == nullptr, "quantize", "{} is already quantized",
             path.empty() ? "the model" : fmt::format("'{}'", path));
  auto warnings = Quantizing(model, config, input_shape, part).run();
  model.to(model.device());  // the quantizers too
  return warnings;
}

}  // namespace

std::vector<std::string> quantize(Module& model, const QuantConfig& config, const Shape& input_shape) {
  return quantize_checked(model, config, input_shape, nullptr);
}

std::vector<std::string> quantize(Module& model, const QuantConfig& config, const Shape& input_shape,
                                  NetworkPart& part) {
  return quantize_checked(model, config, input_shape, &part);
}

void check_one_target(Module& model) { (void)model_target(model); }

Target model_target(Module& model) {
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
             "'{}' is quantized for the target {}, '{}' for {}: one engine runs the whole model, use its "
             "parts one target",
             first_path, name(first->target()), path, name(quant->target()));
  }
  return first == nullptr ? Target::none : first->target();
}

}  // namespace fq
