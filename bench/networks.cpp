#include "fakequant/bench/networks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/bench/arrays.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/losses.h"
#include "fakequant/train/qat_defaults.h"

namespace fq::bench {
namespace {

/// Small enough that hundreds of steps on one batch do not change the size of values and gradients.
constexpr double kLearningRate = 1e-5;

struct Case {
  std::string name;
  Shape input;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> table{{"mlp", {256, 1, 28, 28}},
                                       {"conv4", {64, 64, 28, 28}},
                                       {"cnn", {64, 1, 28, 28}},
                                       {"resnet20", {64, 3, 32, 32}}};
  return table;
}

std::string conv4_text() {
  std::string nodes;
  for (int i = 1; i <= 4; ++i)
    nodes += fmt::format(
        R"({{"name": "conv{0}", "type": "conv2d", "options": {{"out_channels": 64, "kernel": 3, "padding": 1, "bias": false}}}},
           {{"name": "bn{0}", "type": "batch_norm"}}, {{"name": "relu{0}", "type": "relu"}},)",
        i);
  return fmt::format(R"({{"name": "conv4", "nodes": [{} {{"name": "pool", "type": "global_avg_pool"}},
    {{"name": "flatten", "type": "flatten"}},
    {{"name": "fc", "type": "linear", "options": {{"out_features": "classes"}}}}]}})",
                     nodes);
}

Tensor cyclic_labels(std::int64_t count) {
  Tensor labels = Tensor::empty({count}, DType::i64);
  auto* values = labels.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) values[i] = i % kClasses;
  return labels;
}

/// Ids [windows, tokens] that look like chance.
Tensor random_ids(std::int64_t windows, std::int64_t tokens, std::int64_t vocabulary, std::uint32_t state) {
  Tensor ids = Tensor::empty({windows, tokens}, DType::i64);
  auto* values = ids.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    state = state * 1664525U + 1013904223U;
    values[i] = static_cast<std::int64_t>(state >> 8) % vocabulary;
  }
  return ids;
}

const char* preset_name(Numbers numbers) {
  switch (numbers) {
    case Numbers::e4m3:
      return "fp8";
    case Numbers::nvfp4:
      return "nvfp4";
    case Numbers::mxfp8:
      return "mxfp8";
    case Numbers::mxfp4:
      return "mxfp4";
    case Numbers::int4_blockwise:
      return "int4_blockwise";
    case Numbers::w8da4:
      return "8da4w";
    case Numbers::q4_0:
      return "q4_0";
    default:
      return "int8";
  }
}

void quantize_and_calibrate(const Network& network, Numbers numbers) {
  quantize(*network.model, QuantConfig::from_json(preset_config(preset_name(numbers))), network.x.shape());
  const auto data = std::make_shared<TensorDataset>(network.x, network.labels);
  DataLoader loader(data, {.batch_size = network.x.dim(0), .shuffle = false});
  calibrate(*network.model, loader);
  if (numbers == Numbers::int8_learned) learn_ranges(*network.model);
}

}  // namespace

const std::vector<std::string>& network_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Case& entry : cases()) all.push_back(entry.name);
    return all;
  }();
  return names;
}

bool has_batch_norm(std::string_view name) { return name != "mlp"; }

Network make_network(std::string_view name, Numbers numbers, BatchNorm batch_norm) {
  const auto found = std::ranges::find(cases(), name, &Case::name);
  FQ_CHECK(found != cases().end(), "bench", "there is no network '{}'", name);
  const Shape& input = found->input;
  const auto spec = name == "conv4" ? ModelSpec::parse(conv4_text()) : ModelSpec::builtin(name);
  Network network{build_model(spec, {input.begin() + 1, input.end()}, kClasses, {.seed = 1}), bell(input, 1),
                  cyclic_labels(input[0])};
  if (batch_norm == BatchNorm::folded) fold_batch_norm(*network.model, input);
  if (numbers != Numbers::fp32) quantize_and_calibrate(network, numbers);
  network.model->train();
  if (name == "conv4") network.x = network.x.to(Layout::channels_last);
  return network;
}

Network make_gpt(Numbers numbers, const GptSize& size) {
  const auto options = fmt::format(R"({{"layers": {}, "width": {}, "heads": {}, "context": {}}})",
                                   size.layers, size.width, size.heads, size.context);
  Network network{build_model(ModelSpec::load("gpt", options), {size.context}, size.vocabulary,
                              {.seed = 1, .dense = true}),
                  random_ids(size.batch, size.context, size.vocabulary, 1),
                  random_ids(size.batch, size.context, size.vocabulary, 2)};
  if (numbers != Numbers::fp32) quantize_and_calibrate(network, numbers);
  network.model->train();
  return network;
}

Network make_network(const NetworkSize& size, Numbers numbers) {
  Network network{build_model(ModelSpec::load(size.name, size.options),
                              {size.input.begin() + 1, size.input.end()}, kClasses, {.seed = 1}),
                  bell(size.input, 1), cyclic_labels(size.input[0])};
  if (numbers != Numbers::fp32) quantize_and_calibrate(network, numbers);
  network.model->train();
  return network;
}

TrainingStep::TrainingStep(Network network)
    : network_(std::move(network)),
      optimizer_(network_.model->named_parameters(), {.learning_rate = kLearningRate, .momentum = 0.9}),
      passes_(network_.model, {.loss = make_loss({})}) {}

void TrainingStep::run(std::int64_t samples) {
  zero_grad();
  passes_.forward({network_.x.slice(0, samples), network_.labels.slice(0, samples)}, {});
  passes_.backward();
  optimizer_.step();
}

Variable TrainingStep::loss() const {
  return losses::cross_entropy((*network_.model)(network_.x), network_.labels, {});
}

}  // namespace fq::bench
