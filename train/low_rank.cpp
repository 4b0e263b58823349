#include "fakequant/train/low_rank.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "fakequant/core/context.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/layers/modules/detail/init.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq {
namespace {

constexpr std::string_view kLowRank = "low_rank";

// Holds A and B, so that optimizers and checkpoints see them as parameters of a module.
class Parameters : public Module {
 public:
  using Module::add_parameter;
};

using Layer = std::pair<std::string, Variable>;

/// Returns each quantized weight once, with the path of its first layer.
std::vector<Layer> quantized_layers(Module& model) {
  std::vector<Layer> out;
  std::set<const void*> known;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* layer = dynamic_cast<const QuantModule*>(module);
    if (layer == nullptr || layer->weight_quantizer() == nullptr) continue;
    const Variable weight = layer->quantized_weight();
    // A weight of one axis (a norm) has no factors; a tied weight gets one pair.
    if (weight.defined() && weight.rank() > 1 && known.insert(weight.node().get()).second)
      out.emplace_back(path, weight);
  }
  return out;
}

std::vector<Layer> matching(const std::vector<Layer>& all, const std::string& pattern) {
  std::vector<Layer> out;
  std::vector<std::string> names;
  for (const auto& layer : all) {
    names.push_back(layer.first);
    if (detail::wildcard_match(pattern, layer.first)) out.push_back(layer);
  }
  FQ_CHECK(!all.empty(), kLowRank, "no layer has a quantized weight: quantize the model before");
  FQ_CHECK(!out.empty(), kLowRank, "the layers of adapters are '{}', which no quantized layer matches{}",
           pattern, detail::did_you_mean(pattern, names));
  return out;
}

// A weight is the matrix [out, all other axes], also for convolutions.
std::int64_t columns(const Variable& weight) { return weight.numel() / weight.dim(0); }

void check(const LowRankOptions& options, const std::vector<Layer>& layers) {
  FQ_CHECK(options.alpha >= 0 && std::isfinite(options.alpha), kLowRank,
           "the alpha of adapters is {}: use more than 0, or 0 for twice the rank", options.alpha);
  for (const auto& [path, weight] : layers) {
    const std::int64_t most = std::min(weight.dim(0), columns(weight));
    FQ_CHECK(
        options.rank <= most, kLowRank,
        "the rank of adapters is {}, and the weight of {} is {} x {}: use at most {}, or layers without it",
        options.rank, path, weight.dim(0), columns(weight), most);
  }
}

Variable as_matrix(const Tensor& weight) {
  const std::int64_t rows = weight.shape()[0];
  return weight.to(Layout::row_major).reshape({rows, weight.numel() / rows});
}

}  // namespace

LowRankAdapters::LowRankAdapters(Module& model, const LowRankOptions& options) : scale_(options.scale()) {
  FQ_CHECK(options.rank >= 1, kLowRank, "the rank of adapters is {}: use 1 or more", options.rank);
  const auto layers = matching(quantized_layers(model), options.layers);
  check(options, layers);
  const auto parameters = std::make_shared<Parameters>();
  std::set<const void*> adapted;
  for (const auto& [path, weight] : layers) {
    const Device device = weight.device();
    const std::int64_t in = columns(weight);
    const Variable a =
        parameters->add_parameter(path + ".lora_A", detail::init_uniform({options.rank, in}, in).to(device));
    const Variable b = parameters->add_parameter(
        path + ".lora_B", Tensor::zeros({weight.dim(0), options.rank}, DType::f32, device));
    // The base W is copied: `merge` overwrites the model's weight.
    adapters_.push_back({path, weight, a, b, weight.tensor().clone()});
    adapted.insert(weight.node().get());
  }
  parameters_ = parameters;
  // Adapted weights still get a gradient: `take_gradients` computes the gradients of A and B from it.
  for (Variable& parameter : model.parameters()) {
    if (adapted.contains(parameter.node().get()) || !parameter.requires_grad()) continue;
    parameter.set_requires_grad(false);
    frozen_.push_back(parameter);
  }
}

LowRankAdapters::~LowRankAdapters() {
  for (Variable& parameter : frozen_) parameter.set_requires_grad(true);
}

void LowRankAdapters::take_gradients() {
  const NoGrad no_grad;
  for (auto& [layer, weight, a, b, base] : adapters_) {
    if (!weight.grad().defined()) continue;
    // dA = s B^T dW: [rank, in]; dB = s dW A^T: [out, rank]
    const Variable gradient = as_matrix(weight.grad()), a_t = ops::transpose(a.detach(), {1, 0}),
                   b_t = ops::transpose(b.detach(), {1, 0});
    a.set_grad(ops::scale(ops::matmul(b_t, gradient), scale_).tensor());
    b.set_grad(ops::scale(ops::matmul(gradient, a_t), scale_).tensor());
    weight.zero_grad();
  }
}

void LowRankAdapters::merge() {
  const NoGrad no_grad;
  for (auto& [layer, weight, a, b, base] : adapters_) {
    const Variable product = ops::scale(ops::matmul(b.detach(), a.detach()), scale_);
    // Always from the base, so that rounding errors of many steps do not add up.
    const Tensor merged = ops::add(as_matrix(base), product).tensor().reshape(weight.shape());
    weight.mutable_tensor().copy_from(merged.to(weight.layout()));
  }
}

StateDict LowRankAdapters::state_dict() const {
  StateDict out;
  for (const auto& [layer, weight, a, b, base] : adapters_) {
    out.set(layer + "/lora_A", a.tensor());
    out.set(layer + "/lora_B", b.tensor());
    out.set(layer + "/base", base);
  }
  return out;
}

void LowRankAdapters::load_state(const StateDict& state) {
  FQ_CHECK(state.names().size() == 3 * adapters_.size(), kLowRank,
           "the state has {} tensors, these adapters {}", state.names().size(), 3 * adapters_.size());
  for (const auto& [layer, weight, a, b, base] : adapters_) {
    // All tensors are checked before the first one is written.
    (void)state.at(layer + "/lora_A", a.shape(), DType::f32);
    (void)state.at(layer + "/lora_B", b.shape(), DType::f32);
    (void)state.at(layer + "/base", weight.shape(), DType::f32);
  }
  for (auto& [layer, weight, a, b, base] : adapters_) {
    a.mutable_tensor().copy_from(state.at(layer + "/lora_A"));
    b.mutable_tensor().copy_from(state.at(layer + "/lora_B"));
    base.copy_from(state.at(layer + "/base"));
  }
}

}  // namespace fq
