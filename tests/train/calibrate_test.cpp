#include "fakequant/train/calibration/calibrate.h"

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

TEST(Calibrate, SetsEveryRangeWithTheSameBitsForAnyNumberOfThreads) {
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

TEST(Calibrate, KeepsWhatIsKnownWhenAsked) {
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

TEST(Calibrate, LooksAtSoManyImagesOnly) {
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

TEST(Calibrate, NoDataIsRefusedBeforeItBegins) {
  const auto refuses = [](std::int64_t images, const char* why) {
    const auto make = [images] {
      const auto data = std::make_shared<TensorDataset>(Tensor::zeros({images, 1, 8, 8}));
      (void)DataLoader(data, {.batch_size = 8, .drop_last = true});
    };
    EXPECT_THAT(make, testing::ThrowsMessage<ArgumentError>(testing::HasSubstr(why)));
  };
  refuses(0, "give [N, ..] with N > 0");
  refuses(4, "the data has 4 images, a batch 8");
}

TEST(Calibrate, ANaNIsNamedByQuantizerAndBatchAndLeavesTheRanges) {
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

TEST(Calibrate, GivesADeadChannelARangeThatItsBiasFitsIn) {
  auto model = quantized_net();
  auto& conv = dynamic_cast<QuantConv2d&>(model->at("conv2"));
  Variable weight = conv.weight(), bias = conv.bias();
  std::fill_n(weight.mutable_tensor().mutable_data<float>() + 3 * 72, 72, 1e-12f);
  bias.mutable_tensor().mutable_data<float>()[3] = -1.0f;
  DataLoader data = loader(random_tensor({16, 1, 8, 8}, 0, 1));
  calibrate(*model, data);
  const float input = conv.input_quantizers()[0]->spec().scale.data<float>()[0];
  const float scale = conv.weight_quantizer()->spec().scale.data<float>()[3];
  EXPECT_NEAR(-1.0 / (double(input) * double(scale)), -0x1p22, 2);  // two roundings to float
  const Tensor other = conv.weight_quantizer()->amax();
  EXPECT_EQ(floor_dead_channels(*model), 0);
  EXPECT_TRUE(bitwise_equal(other, conv.weight_quantizer()->amax()));
}

TEST(Calibrate, RefusesPartsOfDifferentTargets) {
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

TEST(Calibrate, RefusesModelsWithoutQuantizersAndNegativeCounts) {
  auto model = residual_net();
  DataLoader data = loader(random_tensor({8, 1, 8, 8}, 0, 1));
  EXPECT_THROW(calibrate(*model, data), ArgumentError);
  EXPECT_THROW(calibrate(*model, data, {.samples = -1}), ArgumentError);
}

}  // namespace
}  // namespace fq::calibrate_test
