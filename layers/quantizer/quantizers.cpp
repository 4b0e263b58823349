#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/config/detail/merged_rules.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq {
namespace {

std::vector<std::string> quantizer_paths(const NamedQuantizer& entry) {
  auto paths = entry.aliases;
  paths.insert(paths.begin(), entry.name);
  return paths;
}

}  // namespace

std::vector<NamedQuantizer> named_quantizers(Module& model) {
  std::vector<NamedQuantizer> out;
  for (auto& [path, module] : model.named_modules()) {
    auto* quantizer = dynamic_cast<TensorQuantizer*>(module);
    // The parts of a sequential quantizer are modules of their own.
    if (quantizer == nullptr || dynamic_cast<SequentialQuantizer*>(module) != nullptr) continue;
    // All readers of a tensor share one quantizer, so it appears under several paths.
    const auto known = std::ranges::find(out, quantizer, &NamedQuantizer::quantizer);
    if (known == out.end())
      out.push_back({path, quantizer, {}});
    else
      known->aliases.push_back(path);
  }
  for (auto& entry : out) {  // prefer the name that quantize() gave
    const auto given = std::ranges::find(entry.aliases, entry.quantizer->name());
    if (given != entry.aliases.end()) std::swap(entry.name, *given);
  }
  return out;
}

std::set<const TensorQuantizer*> weight_quantizers(Module& model) {
  std::set<const TensorQuantizer*> out;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* quant = dynamic_cast<QuantModule*>(module);
    if (quant == nullptr || quant->weight_quantizer() == nullptr) continue;
    for (const auto* part : quantizer_parts(*quant->weight_quantizer())) out.insert(part);
  }
  return out;
}

void visit_quantizers(Module& model, const std::function<void(const NamedQuantizer&)>& visit) {
  for (const auto& entry : named_quantizers(model)) visit(entry);
}

int visit_quantizers(Module& model, std::string_view pattern, std::string_view function,
                     const std::function<void(const NamedQuantizer&)>& visit) {
  const std::string wanted(pattern);  // a copy: `visit` may change the string
  int count = 0;
  std::vector<std::string> all;
  for (const auto& entry : named_quantizers(model)) {
    const auto paths = quantizer_paths(entry);
    all.insert(all.end(), paths.begin(), paths.end());
    if (std::ranges::none_of(paths, [&](const auto& path) { return detail::wildcard_match(wanted, path); }))
      continue;
    visit(entry);
    ++count;
  }
  FQ_CHECK(count > 0, function, "the pattern '{}' matches no quantizer: the nearest are {}", wanted,
           fmt::join(detail::nearest(wanted, all, 3), ", "));
  return count;
}

int enable_quantizer(Module& model, std::string_view pattern) {
  return visit_quantizers(model, pattern, "enable_quantizer",
                          [](const NamedQuantizer& entry) { entry.quantizer->set_enabled(true); });
}

int disable_quantizer(Module& model, std::string_view pattern) {
  return visit_quantizers(model, pattern, "disable_quantizer",
                          [](const NamedQuantizer& entry) { entry.quantizer->set_enabled(false); });
}

int set_quantizer_attributes(Module& model, std::string_view pattern, const nlohmann::json& fields) {
  FQ_CHECK(fields.is_object(), "set_quantizer_attributes", "the fields are not a JSON object");
  const auto given = PartialQuantParams::from_dict(fields);
  const auto weights = weight_quantizers(model);
  return visit_quantizers(model, pattern, "set_quantizer_attributes", [&](const NamedQuantizer& entry) {
    // Binary weights are checked here, because a quantizer does not know whether it belongs to a weight.
    QuantParams params = entry.quantizer->params();
    detail::apply(given, params);
    FQ_CHECK(params.weight_scheme != &detail::binary_weights() || weights.contains(entry.quantizer),
             "set_quantizer_attributes",
             "'{}' is binary: that is for weights, use num_bits 2 or leave binary out", entry.name);
    entry.quantizer->set_params(std::move(params));
  });
}

std::vector<std::string> uncalibrated_quantizers(Module& model) {
  std::vector<std::string> names;
  for (const auto& [name, q, aliases] : named_quantizers(model))
    if (q->enabled() && q->quantizing() && q->descriptor().needs_amax() && !q->amax().defined())
      names.push_back(name);
  return names;
}

void print_quant_summary(Module& model, std::ostream& out) {
  const auto entries = named_quantizers(model);
  std::size_t width = 9;
  for (const auto& entry : entries) width = std::max(width, entry.name.size());
  for (const auto& [name, quantizer, aliases] : entries) {
    out << fmt::format("{:<{}}  {}", name, width, quantizer->describe());
    if (!aliases.empty()) out << fmt::format("  (also {})", fmt::join(aliases, ", "));
    out << '\n';
  }
  out << fmt::format(
      "{} quantizers, {} enabled\n", entries.size(),
      std::ranges::count_if(entries, [](const auto& e) { return e.quantizer->params().enabled; }));
}

void fold_weight(Module& model) {
  const NoGrad no_grad;
  for (auto& [path, module] : model.named_modules()) {
    auto* quant = dynamic_cast<QuantModule*>(module);
    auto* quantizer = quant != nullptr ? quant->weight_quantizer() : nullptr;
    if (quantizer == nullptr || !quantizer->enabled()) continue;
    Variable weight = quant->quantized_weight();
    const Tensor values = quantizer->weight(weight).tensor();
    if (holds_codes(weight))
      set_weight(*quant, values);
    else
      weight.mutable_tensor().copy_from(values);
    // The weight has the values now; the quantizer must not round them again.
    for (auto* part : quantizer_parts(*quantizer)) part->set_enabled(false);
  }
}

void set_calib_method(TensorQuantizer& quantizer, std::string_view method) {
  if (method == quantizer.descriptor().calib_method()) return;
  auto options = quantizer.descriptor().options();
  options.calib_method = method;
  quantizer.set_descriptor(QuantDescriptor(std::move(options)));
}

namespace {

/// Makes the ranges of activations, or of weights, parameters. `function` is the caller that requires
/// calibrated ranges, null for none.
int enable_learned_ranges(Module& model, bool of_weights, AmaxGradient gradient, const char* function) {
  int count = 0;
  const auto weights = weight_quantizers(model);
  for (auto& [name, q, aliases] : named_quantizers(model)) {
    if (weights.contains(q) != of_weights || !q->params().enabled || !q->descriptor().needs_amax() ||
        !q->descriptor().block_sizes().empty())
      continue;
    if (function != nullptr)
      FQ_CHECK(q->amax().defined(), function, "'{}' has no amax: calibrate it first", name);
    auto options = q->descriptor().options();
    options.learn_amax = true;
    q->update([&](QuantParams& params) {
      params.amax_gradient = gradient;
      params.descriptor = QuantDescriptor(options);
    });
    ++count;
  }
  return count;
}

}  // namespace

int learn_ranges(Module& model, AmaxGradient gradient) {
  const int count = enable_learned_ranges(model, false, gradient, "learn_ranges");
  FQ_CHECK(count > 0, "learn_ranges", "no quantizer of an activation has a range to learn");
  return count;
}

int learn_weight_ranges(Module& model, AmaxGradient gradient) {
  return enable_learned_ranges(model, true, gradient, "learn_weight_ranges");
}

int learn_ranges_once_calibrated(Module& model, bool activations, bool weights, AmaxGradient gradient) {
  return (activations ? enable_learned_ranges(model, false, gradient, nullptr) : 0) +
         (weights ? enable_learned_ranges(model, true, gradient, nullptr) : 0);
}

void save_quantizers(Module& model, StateDict& state) {
  for (const auto& [name, quantizer, aliases] : named_quantizers(model)) {
    quantizer->save(state, "quantizers/" + name);
    state.set_attribute("quantizers/" + name + "/aliases", aliases);
  }
}

void load_quantizers(Module& model, const StateDict& state) {
  for (const auto& [name, quantizer, aliases] : named_quantizers(model)) {
    // Quantizers are found by name: quantize() gives the same names for the same model and config.
    FQ_CHECK(state.has_sub("quantizers/" + name), "load_quantizers", "the state has no quantizer '{}'", name);
    quantizer->load(state, "quantizers/" + name);
  }
}

namespace {

/// Smallest normal and largest number of a type. For f64, the numbers of f32.
struct Numbers {
  float least, most;

  static Numbers of(DType dtype) {
    if (dtype == DType::f16) return {0x1p-14f, 65504};
    return {std::numeric_limits<float>::min(),
            dtype == DType::bf16 ? 0x1.fep127f : std::numeric_limits<float>::max()};
  }
};

// Removes axes of size 1.
Tensor squeezed(const Tensor& x) {
  Shape shape;
  std::ranges::copy_if(x.shape(), std::back_inserter(shape), [](std::int64_t size) { return size != 1; });
  return x.reshape(shape);
}

/// Returns ranges clamped to [least, most]. A range of 0 becomes `instead_of_0`.
Tensor within(const Tensor& range, float least, float most, float instead_of_0) {
  Tensor out = range.to(Device::cpu()).to(DType::f32).clone();
  auto* values = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    values[i] = std::clamp(values[i] == 0 ? instead_of_0 : values[i], least, most);
  return out.to(range.dtype());
}

}  // namespace

Tensor export_amax(const TensorQuantizer& quantizer, const Shape& input) {
  const QuantDescriptor& d = quantizer.descriptor();
  const Tensor range = quantizer.amax();
  if (!range.defined()) return {};
  const bool blocks = !d.block_sizes().empty() && !d.has_dynamic_blocks();
  FQ_CHECK(!blocks || !input.empty(), "export_amax", "{} has blocks: use the shape of its input",
           detail::quantizer_label(quantizer.name()));
  // ModelOpt's export_amax clamps to the numbers of the type and replaces 0 by the bound (golden/README).
  const auto [smallest, most] = Numbers::of(range.dtype());
  const Tensor out = within(range, d.has_dynamic_blocks() ? 0.0f : smallest, most, d.format().bound());
  if (d.has_dynamic_blocks() || (blocks && numel(input) == 0)) return out;
  const auto view = detail::BlockView::of(d, input);
  // The exporters expect [.., blocks per row] for blocks along the last axis.
  if (view.is_last_axis()) {
    Shape rows(input.begin(), input.end() - 1);
    rows.push_back(-1);
    return out.reshape(rows);
  }
  const std::size_t kept = view.kept().values().size();
  const bool per_axis = d.block_sizes().empty() || view.range_shape().size() == input.size();
  if (kept == 0 && per_axis && out.rank() == 0) return out.reshape({1});
  return kept == 1 && per_axis ? squeezed(out) : out;
}

}  // namespace fq
