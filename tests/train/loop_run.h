#pragma once

/// A small run for the tests of the loop: images of four classes, a network with batch norm and dropout.

#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "fakequant/core/random.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/conv.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/modules/sequential.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/loop/trainer.h"
#include "folder.h"

namespace fq::test {

/// f32 [count, 1, 8, 8], one bright quadrant a class, with noise.
inline std::shared_ptr<const Dataset> quadrants(std::int64_t count, std::uint64_t seed) {
  Tensor x = Tensor::empty({count, 1, 8, 8});
  fill_uniform(x, -1, 1, seed);
  std::vector<std::int64_t> y;
  auto* pixels = x.mutable_data<float>();
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t label = (n * 7 + n / 5) % 4;
    y.push_back(label);
    for (std::int64_t i = 0; i < 16; ++i)
      pixels[n * 64 + (label / 2 * 4 + i / 4) * 8 + label % 2 * 4 + i % 4] += 1.0f;
  }
  return std::make_shared<TensorDataset>(x, Tensor::from(y, {count}));
}

inline std::shared_ptr<Module> small_network(bool quantized, double dropout = 0.2) {
  const RandomScope seed(3, 0);
  const ops::ConvOptions same{.stride = {}, .padding = {1}, .dilation = {}, .groups = 1};
  auto model = std::make_shared<Sequential>();
  model->add("conv", std::make_shared<Conv2d>(1, 6, Shape{3}, same, false))
      .add("bn", std::make_shared<BatchNorm>(6))
      .add("relu", make_relu())
      .add("pool", make_max_pool({}))
      .add("flat", make_flatten())
      .add("drop", make_dropout(dropout))
      .add("fc", std::make_shared<Linear>(96, 4));
  if (quantized) quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  return model;
}

inline LoaderOptions shuffled(std::int64_t batch = 16) {
  return {.batch_size = batch, .seed = 5, .prefetch = 2, .augment = {.shift = 0.5}};
}

inline LoaderOptions sequential_options() { return {.batch_size = 16, .shuffle = false, .prefetch = 0}; }

/// 6 batches an epoch; weights are averaged.
struct Plan {
  TrainerOptions options{.epochs = 3,
                         .seed = 11,
                         .objective = {.label_smoothing = 0.05},
                         .optimizer = {.learning_rate = 5e-3, .weight_decay = 0.01},
                         .schedule = {.kind = "one_cycle"},
                         .update = {.clip_norm = 2, .average_decay = 0.9}};
  TrainerCallbacks callbacks = {};
  LoaderOptions loader = shuffled();
  bool quantized = false, validate = true;
  Arithmetic arithmetic = Arithmetic::deployed;
  Device device = Device::cpu();
  std::int64_t samples = 96;
  std::function<void(Module&)> prepare = {};

  [[nodiscard]] std::unique_ptr<Trainer> make() const {
    auto model = small_network(quantized);
    if (quantized && options.ranges.amax != AmaxMode::running)
      visit_quantizers(*model, [](const NamedQuantizer& q) { q.quantizer->set_amax(Tensor::scalar(2)); });
    if (quantized && options.ranges.amax == AmaxMode::running)
      visit_quantizers(*model, [](const NamedQuantizer& q) {
        if (q.name.ends_with("weight_quantizer")) q.quantizer->set_amax(Tensor::scalar(0.5));
      });
    visit_quantizers(*model, [&](const NamedQuantizer& q) {
      q.quantizer->update([&](auto& settings) { settings.arithmetic = arithmetic; });
    });
    if (prepare) prepare(*model);
    model->to(device);
    LoaderOptions there = loader;
    there.device = device;
    auto validation =
        validate ? std::make_shared<DataLoader>(quadrants(40, 2), sequential_options()) : nullptr;
    return std::make_unique<Trainer>(model, std::make_shared<DataLoader>(quadrants(samples, 1), there),
                                     options, validation, callbacks);
  }
};

}  // namespace fq::test
