#pragma once

/// Networks and data that several tests use.

#include <memory>
#include <random>

#include "fakequant/layers/model/graph.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/quantize.h"

namespace fq::test {

inline Tensor random_tensor(Shape shape, float low, float high, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(low, high);
  Tensor out = Tensor::empty(std::move(shape));
  for (std::int64_t i = 0; i < out.numel(); ++i) out.mutable_data<float>()[i] = value(random);
  return out;
}

/// conv1 - bn1 - relu1 - pool - conv2 - bn2 - add (of pool) - relu2 - global pooling - flatten - fc.
inline std::shared_ptr<Graph> residual_net() {
  const ops::ConvOptions same{.stride = {}, .padding = {1}, .dilation = {}, .groups = 1};
  std::vector<GraphNode> nodes;
  nodes.push_back({"conv1", std::make_shared<Conv2d>(1, 8, Shape{3}, same, false), {"input"}});
  nodes.push_back({"bn1", std::make_shared<BatchNorm>(8), {"conv1"}});
  nodes.push_back({"relu1", make_relu(), {"bn1"}});
  nodes.push_back({"pool", make_max_pool({}), {"relu1"}});
  nodes.push_back({"conv2", std::make_shared<Conv2d>(8, 8, Shape{3}, same), {"pool"}});
  nodes.push_back({"bn2", std::make_shared<BatchNorm>(8), {"conv2"}});
  nodes.push_back({"add", std::make_shared<Add>(), {"bn2", "pool"}});
  nodes.push_back({"relu2", make_relu(), {"add"}});
  nodes.push_back({"gap", std::make_shared<GlobalAvgPool2d>(), {"relu2"}});
  nodes.push_back({"flat", make_flatten(), {"gap"}});
  nodes.push_back({"fc", std::make_shared<Linear>(8, 10), {"flat"}});
  return std::make_shared<Graph>(std::move(nodes));
}

/// Sets every range from one batch.
inline void observe(Module& model, const Tensor& x) {
  model.eval();
  for (auto& q : named_quantizers(model)) {
    q.quantizer->set_observing(true);
    q.quantizer->set_quantizing(false);
  }
  const NoGrad no_grad;
  (void)model(Variable(x)).tensor();
  for (auto& q : named_quantizers(model)) {
    q.quantizer->set_observing(false);
    q.quantizer->set_quantizing(true);
    if (q.quantizer->enabled() && q.quantizer->descriptor().needs_amax()) q.quantizer->load_calibrated_amax();
  }
}

}  // namespace fq::test
