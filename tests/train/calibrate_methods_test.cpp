#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/random.h"
#include "fakequant/train/calibration/calibrate.h"
#include "layers/networks.h"

namespace fq::calibrate_methods_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using namespace test;

DataLoader loader() {
  return DataLoader(std::make_shared<TensorDataset>(random_tensor({24, 1, 8, 8}, 0, 1)),
                    {.batch_size = 8, .shuffle = false});
}

/// A network with `change` applied to the descriptors of all quantizers, or of weight quantizers only.
template <class Change>
std::shared_ptr<Graph> quantized_net(bool inputs, const Change& change) {
  auto model = residual_net();
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  for (const auto& [name, q, aliases] : named_quantizers(*model)) {
    if (!q->enabled() || (!inputs && name.find("weight_quantizer") == std::string::npos)) continue;
    auto options = q->descriptor().options();
    change(options);
    q->set_descriptor(QuantDescriptor(options));
  }
  return model;
}

double weight_error(Graph& model, const char* layer) {
  auto& quant = dynamic_cast<QuantModule&>(model.at(layer));
  const Tensor w = quant.quantized_weight().tensor();
  const auto codes = quantize(w, quant.weight_quantizer()->grid(), false);
  const auto y = dequantize(codes).to_vector<float>(), v = w.to_vector<float>();
  double sum = 0;
  for (std::size_t i = 0; i < v.size(); ++i) sum += static_cast<double>((y[i] - v[i]) * (y[i] - v[i]));
  return sum;
}

TEST(CalibrateMethods, SupportWeightsAndActivations) {
  for (const std::string_view method : QuantDescriptor::calib_methods()) {
    if (method == "scale_sweep") continue;  // for blocks of weights
    auto model = quantized_net(true, [&](auto& o) { o.calib_method = method; });
    DataLoader data = loader();
    calibrate(*model, data);
    for (const auto& [name, q, aliases] : named_quantizers(*model)) {
      if (!q->enabled()) continue;
      const bool weight = name.find("weight_quantizer") != std::string::npos;
      EXPECT_EQ(q->amax().numel() > 1, weight) << name << ", " << method;
      for (const float v : q->amax().to_vector<float>()) EXPECT_GT(v, 0) << name << ", " << method;
    }
  }
}

TEST(CalibrateMethods, SearchesHaveSmallerErrorsThanTheLargestMagnitude) {
  const auto error = [](const std::string& method, const auto& change) {
    const RandomScope same_weights(3, 0);
    auto model = quantized_net(false, [&](auto& o) {
      change(o);
      o.calib_method = method;
    });
    DataLoader data = loader();
    calibrate(*model, data);
    return weight_error(*model, "conv2");
  };
  const auto int4 = [](auto& o) { o.num_bits = 4; };
  EXPECT_LT(error("mse_search", int4), error("max", int4));
  EXPECT_LT(error("octav", int4), error("max", int4));
  const auto nvfp4 = [](auto& o) {
    o.num_bits = {2, 1};
    o.axis = {};
    o.narrow_range = false;
    o.block_sizes = {.lengths = {{-1, 3}}, .scale_bits = NumBits(4, 3)};
  };
  EXPECT_LT(error("scale_sweep", nvfp4), error("max", nvfp4));
}

TEST(CalibrateMethods, ScaleSweepRequiresE4m3BlockScales) {
  auto model = quantized_net(false, [](auto& o) { o.calib_method = "scale_sweep"; });
  DataLoader data = loader();
  EXPECT_THAT([&] { calibrate(*model, data); },
              ThrowsMessage<ArgumentError>(HasSubstr("static blocks with scale_bits (4, 3)")));
}

}  // namespace
}  // namespace fq::calibrate_methods_test
