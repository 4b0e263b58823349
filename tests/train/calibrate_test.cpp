#include "fakequant/train/calibration/calibrate.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"
#include "fakequant/layers/quantizer/detail/dead_channels.h"
#include "layers/networks.h"

namespace fq::calibrate_test {
namespace {

using namespace test;

std::shared_ptr<Graph> quantized_net() {
  auto model = residual_net();
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  return model;
}

DataLoader loader(Tensor images) {
  return DataLoader(std::make_shared<TensorDataset>(std::move(images)), {.batch_size = 8, .shuffle = false});
}

std::vector<float> ranges(Module& model) {
  std::vector<float> out;
  for (const auto& q : named_quantizers(model))
    if (q.quantizer->enabled())
      for (const float v : q.quantizer->amax().to_vector<float>()) out.push_back(v);
  return out;
}

TEST(Calibrate, SetsEveryRangeInvariantToThreadCount) {
  const Tensor images = random_tensor({50, 1, 8, 8}, 0, 1);
  auto model = quantized_net();
  const int before = detail::threads();
  std::vector<float> expected;
  for (const int threads : {1, 2, 4}) {
    detail::set_threads(threads);
    DataLoader data = loader(images);
    const CalibrationReport report = calibrate(*model, data, {.method = "entropy"});
    EXPECT_EQ(report.samples, 50);
    EXPECT_EQ(report.quantizers, 8);
    if (expected.empty()) expected = ranges(*model);
    EXPECT_EQ(ranges(*model), expected);
  }
  detail::set_threads(before);
  EXPECT_TRUE(model->training());
  EXPECT_TRUE(dynamic_cast<TensorQuantizer&>(model->at("conv1.input_quantizer")).descriptor().is_unsigned());
}

TEST(Calibrate, KeepsExistingRangesOnRequest) {
  auto model = quantized_net();
  auto& input = dynamic_cast<TensorQuantizer&>(model->at("fc.input_quantizer"));
  auto& weight = dynamic_cast<TensorQuantizer&>(model->at("fc.weight_quantizer"));
  input.set_amax(Tensor::scalar(3));
  weight.set_amax(Tensor::full({10}, 5));
  DataLoader data = loader(random_tensor({16, 1, 8, 8}, 0, 1));
  EXPECT_EQ(calibrate(*model, data, {.keep_known = true}).quantizers, 6);
  EXPECT_EQ(input.amax().item(), 3);
  EXPECT_EQ(weight.amax().to_vector<float>(), std::vector<float>(10, 5.0f));
  EXPECT_EQ(calibrate(*model, data, {.keep_known = true}).samples, 0);  // nothing to look for
  EXPECT_EQ(calibrate(*model, data).quantizers, 8);
  EXPECT_NE(input.amax().item(), 3);
}

TEST(Calibrate, ReadsTheRequestedNumberOfImages) {
  Tensor images = random_tensor({32, 1, 8, 8}, 0, 1);
  images.mutable_data<float>()[20 * 64] = 100.0f;
  auto model = quantized_net();
  DataLoader data = loader(images);
  EXPECT_EQ(calibrate(*model, data, {.samples = 20}).samples, 20);
  auto& input = dynamic_cast<TensorQuantizer&>(model->at("conv1.input_quantizer"));
  EXPECT_LE(input.amax().item(), 1.0);
  EXPECT_EQ(calibrate(*model, data).samples, 32);
  EXPECT_EQ(input.amax().item(), 100.0);
}

TEST(Calibrate, RejectsEmptyDataBeforeItStarts) {
  const auto expect_error = [](std::int64_t images, const char* why) {
    const auto make = [images] {
      const auto data = std::make_shared<TensorDataset>(Tensor::zeros({images, 1, 8, 8}));
      (void)DataLoader(data, {.batch_size = 8, .drop_last = true});
    };
    EXPECT_THAT(make, testing::ThrowsMessage<ArgumentError>(testing::HasSubstr(why)));
  };
  expect_error(0, "use [N, ..] with N > 0");
  expect_error(4, "the data has 4 images, a batch 8");
}

TEST(Calibrate, ReportsNaNByQuantizerAndBatchWithoutChange) {
  Tensor images = random_tensor({32, 1, 8, 8}, 0, 1);
  auto model = quantized_net();
  DataLoader good = loader(images.clone());
  calibrate(*model, good);
  const auto before = ranges(*model);
  images.mutable_data<float>()[17 * 64] = std::numeric_limits<float>::quiet_NaN();
  DataLoader bad = loader(images);
  try {
    calibrate(*model, bad);
    FAIL() << "a NaN was accepted";
  } catch (const NumericError& error) {
    EXPECT_NE(std::string(error.what()).find("conv1.input_quantizer"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("batch 2"), std::string::npos) << error.what();
  }
  EXPECT_EQ(ranges(*model), before);
}

TEST(Calibrate, DeadChannelRangeFitsItsBias) {
  auto model = quantized_net();
  auto& conv = dynamic_cast<QuantConv2d&>(model->at("conv2"));
  Variable weight = conv.weight(), bias = conv.bias();
  std::fill_n(weight.mutable_tensor().mutable_data<float>() + 3 * 72, 72, 1e-12f);
  bias.mutable_tensor().mutable_data<float>()[3] = -1.0f;
  DataLoader data = loader(random_tensor({16, 1, 8, 8}, 0, 1));
  calibrate(*model, data);
  const float input = conv.input_quantizers()[0]->grid().scale.data<float>()[0];
  const float scale = conv.weight_quantizer()->grid().scale.data<float>()[3];
  // 72 products of unsigned and narrow codes leave this room. Half of it is used, within two roundings to
  // float.
  const double room = 0x1p31 - 72 * 255 * 127;
  EXPECT_NEAR(-1.0 / (double(input) * double(scale)) / room, -0.5, 1e-6);
  const Tensor other = conv.weight_quantizer()->amax();
  EXPECT_EQ(floor_dead_channels(*model), 0);
  EXPECT_TRUE(bitwise_equal(other, conv.weight_quantizer()->amax()));
}

TEST(Calibrate, RaisesTheRangeForItsLargestBias) {
  // Ranges of a transposed convolution in groups serve a channel of each group, one range serves all.
  for (const bool one : {false, true}) {
    const ops::ConvOptions options{.stride = {}, .padding = {}, .dilation = {}, .groups = 2};
    std::vector<GraphNode> nodes;
    nodes.push_back({"up", std::make_shared<ConvTranspose2d>(4, 6, Shape{2}, options), {"input"}});
    auto model = std::make_shared<Graph>(std::move(nodes));
    QuantConfig config = QuantConfig::preset("int8");
    if (one)
      config = QuantConfig::parse(R"({"preset": "int8", "rules": {"*weight_quantizer": {"axis": null}}})");
    quantize(*model, config, {1, 4, 5, 5});
    auto& up = dynamic_cast<ConvTranspose2d&>(model->at("up"));
    Variable bias = up.bias();
    bias.mutable_tensor().mutable_data<float>()[4] = 1e9f;  // channel 1 of the second group
    DataLoader data = loader(random_tensor({16, 4, 5, 5}, -1, 1));
    calibrate(*model, data);
    const NoGrad no_grad;
    model->eval();
    const auto y = (*model)(Variable(random_tensor({1, 4, 5, 5}, -1, 1))).tensor().to(Layout::row_major);
    EXPECT_NEAR(y.to_vector<float>()[4 * 36] / 1e9f, 1, 1e-6) << one;
    EXPECT_EQ(floor_dead_channels(*model), 0);
  }
}

/// A regression target that is not normalized has a bias much larger than the signal.
TEST(Calibrate, KeepsTheSignalDespiteALargeLastBias) {
  const auto made = [](float bias) {
    std::vector<GraphNode> nodes;
    nodes.push_back({"fc1", std::make_shared<Linear>(16, 32), {"input"}});
    nodes.push_back({"relu", make_relu(), {"fc1"}});
    nodes.push_back({"fc2", std::make_shared<Linear>(32, 4), {"relu"}});
    auto model = std::make_shared<Graph>(std::move(nodes));
    auto& last = dynamic_cast<Linear&>(model->at("fc2"));
    const auto fill = [](Variable v, float size, unsigned seed) {
      v.mutable_tensor().copy_from(random_tensor(v.shape(), -size, size, seed));
    };
    fill(dynamic_cast<Linear&>(model->at("fc1")).weight(), 0.25f, 1);
    fill(dynamic_cast<Linear&>(model->at("fc1")).bias(), 0.25f, 2);
    fill(last.weight(), 0.17f, 3);
    fill(last.bias(), 0.0f, 4);
    Variable(last.bias()).mutable_tensor().copy_from(Tensor::full({4}, double(bias)));
    return model;
  };
  const Tensor x = random_tensor({256, 16}, -2, 2, 7);
  const NoGrad no_grad;
  const auto signal = (*made(0))(Variable(x)).tensor().to_vector<float>();
  for (const float bias : {0.0f, 300.0f, 1e3f, 3e3f, 1e4f, -1e4f}) {
    auto model = made(bias);
    quantize(*model, QuantConfig::preset("int8"), {1, 16});
    DataLoader data = loader(x);
    calibrate(*model, data);
    model->eval();
    const auto y = (*model)(Variable(x)).tensor().to_vector<float>();
    double squares = 0;
    for (std::size_t i = 0; i < y.size(); ++i)
      squares += std::pow(double(y[i]) - double(bias) - double(signal[i]), 2);
    // 0.0028 without a bias; float32 itself rounds 1e4 by 5e-4
    EXPECT_LT(std::sqrt(squares / double(y.size())), 0.004) << bias;
  }
}

/// A share of these images is blank. After a layer with a bias, blank images are constants.
Tensor partly_blank(double share, std::int64_t others) {
  const auto blank = static_cast<std::int64_t>(std::lround(double(others) * share / (1 - share)));
  Tensor out = Tensor::zeros({others + blank, 1, 8, 8});
  const Tensor images = random_tensor({others, 1, 8, 8}, -1, 1, 3);
  std::copy_n(images.data<float>(), images.numel(), out.mutable_data<float>() + blank * 64);
  return out;
}

TEST(Calibrate, BlankSamplesBarelyChangeTheRanges) {
  const ops::ConvOptions same{.stride = {}, .padding = {1}, .dilation = {}, .groups = 1};
  std::vector<GraphNode> nodes;
  nodes.push_back({"conv1", std::make_shared<Conv2d>(1, 8, Shape{3}, same), {"input"}});
  nodes.push_back({"relu1", make_relu(), {"conv1"}});
  nodes.push_back({"conv2", std::make_shared<Conv2d>(8, 8, Shape{3}, same), {"relu1"}});
  nodes.push_back({"relu2", make_relu(), {"conv2"}});
  nodes.push_back({"flat", make_flatten(), {"relu2"}});
  nodes.push_back({"fc", std::make_shared<Linear>(512, 10), {"flat"}});
  auto model = std::make_shared<Graph>(std::move(nodes));
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  for (const char* method :
       {"max", "percentile", "entropy", "mse", "octav", "one_pass", "one_pass_entropy", "one_pass_mse",
        "one_pass_octav", "two_pass", "two_pass_entropy", "two_pass_mse", "two_pass_octav"}) {
    const auto found = [&](double share) {
      DataLoader data = loader(partly_blank(share, 64));
      calibrate(*model, data, {.method = method});
      return ranges(*model);
    };
    const auto all = found(0);
    for (const double share : {0.25, 0.5, 0.75, 0.9, 0.95}) {
      const auto some = found(share);
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_GT(some[i], all[i] / 2) << method << ", " << share << " blank, range " << i;
        EXPECT_LT(some[i], all[i] * 2) << method << ", " << share << " blank, range " << i;
      }
    }
  }
}

TEST(Calibrate, RejectsPartsOfDifferentTargets) {
  const auto part = [](Target target) {
    std::vector<GraphNode> nodes;
    nodes.push_back({"fc", std::make_shared<Linear>(64, 64), {"input"}});
    auto graph = std::make_shared<Graph>(std::move(nodes));
    QuantConfig config = QuantConfig::preset("int8");
    config.target = target;
    quantize(*graph, config, {1, 64});
    return graph;
  };
  const auto whole = [&](Target second) {
    std::vector<GraphNode> nodes;
    nodes.push_back({"a", part(Target::ort), {"input"}});
    nodes.push_back({"b", part(second), {"a"}});
    return Graph(std::move(nodes));
  };
  DataLoader data = loader(random_tensor({8, 64}, 0, 1));
  Graph mixed = whole(Target::tensorrt), same = whole(Target::ort);
  try {
    calibrate(mixed, data);
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("'b.fc' for tensorrt"), std::string::npos) << error.what();
  }
  EXPECT_EQ(calibrate(same, data).samples, 8);
}

TEST(Calibrate, RejectsModelsWithoutQuantizersAndNegativeCounts) {
  auto model = residual_net();
  DataLoader data = loader(random_tensor({8, 1, 8, 8}, 0, 1));
  EXPECT_THROW(calibrate(*model, data), ArgumentError);
  EXPECT_THROW(calibrate(*model, data, {.samples = -1}), ArgumentError);
}

}  // namespace
}  // namespace fq::calibrate_test
