// Gradients of learned ranges do not depend on how a batch is split.

#include <cmath>

#include <gtest/gtest.h>

#include "fakequant/core/ops/loss.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/qat_defaults.h"
#include "layers/networks.h"
#include "train/loop_run.h"

namespace fq::learned_split_test {
namespace {

using Gradients = std::vector<std::pair<std::string, Tensor>>;

std::shared_ptr<Module> calibrated(const std::string& preset, AmaxGradient gradient) {
  const RandomScope seed(3, 0);
  const ops::ConvOptions same{.stride = {}, .padding = {1}, .dilation = {}, .groups = 1};
  auto model = std::make_shared<Sequential>();
  model->add("conv", std::make_shared<Conv2d>(1, 6, Shape{3}, same))
      .add("relu", make_relu())
      .add("pool", make_max_pool({}))
      .add("flat", make_flatten())
      .add("fc", std::make_shared<Linear>(96, 32))
      .add("tanh", make_function("tanh"))
      .add("last", std::make_shared<Linear>(32, 4));
  (void)quantize(*model, QuantConfig::preset(preset), {1, 1, 8, 8});
  DataLoader data(test::quadrants(64, 1), test::sequential_options());
  (void)calibrate(*model, data);
  (void)learn_weight_ranges(*model, gradient);
  if (qat_defaults(QuantConfig::preset(preset)).amax == AmaxMode::learned)
    (void)learn_ranges(*model, gradient);
  model->train();
  return model;
}

Gradients gradients(Module& model, std::int64_t chunks) {
  const BackwardScope exact(BackwardType::fp32);
  for (auto& parameter : model.parameters()) parameter.zero_grad();
  const auto data = test::quadrants(64, 1);
  const std::int64_t size = 64 / chunks;
  for (std::int64_t i = 0; i < chunks; ++i) {
    std::vector<std::int64_t> rows;
    for (std::int64_t k = 0; k < size; ++k) rows.push_back(i * size + k);
    const Batch batch = data->read(rows);
    const Variable loss = ops::cross_entropy(model(Variable(batch.x)), batch.y, 0);
    loss.backward(Tensor::full({}, 1.0 / static_cast<double>(chunks)));
  }
  Gradients out;
  for (const auto& [name, parameter] : model.named_parameters()) out.emplace_back(name, parameter.grad());
  return out;
}

double largest(const Tensor& x) {
  double out = 0;
  for (const float v : x.to_vector<float>()) out = std::max(out, std::abs(double(v)));
  return out;
}

TEST(LearnedSplit, ChunksMatchTheGradientsOfOneBatch) {
  for (const auto& preset : QuantConfig::preset_names()) {
    if (!qat_defaults(QuantConfig::preset(preset)).learn_weight_ranges) continue;
    for (const AmaxGradient gradient : {AmaxGradient::lsq, AmaxGradient::clip}) {
      auto model = calibrated(preset, gradient);
      const Gradients one = gradients(*model, 1), four = gradients(*model, 4);
      ASSERT_EQ(one.size(), four.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        if (!one[i].second.defined()) continue;
        const auto a = one[i].second.to_vector<float>(), b = four[i].second.to_vector<float>();
        const double bound = 1e-5 * std::max(largest(one[i].second), 1e-3);  // sums of f32 in another order
        for (std::size_t k = 0; k < a.size(); ++k)
          ASSERT_NEAR(a[k], b[k], bound) << preset << ", " << one[i].first;
      }
    }
  }
}

}  // namespace
}  // namespace fq::learned_split_test
