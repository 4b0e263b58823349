#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "layers/networks.h"

namespace fq::quantization_error_test {
namespace {

using namespace test;

std::shared_ptr<Graph> calibrated(const Tensor& images) {
  auto model = residual_net();
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  DataLoader data(std::make_shared<TensorDataset>(images), {.batch_size = 8, .shuffle = false});
  calibrate(*model, data);
  return model;
}

DataLoader loader(const Tensor& images) {
  return DataLoader(std::make_shared<TensorDataset>(images), {.batch_size = 8, .shuffle = false});
}

TensorQuantizer& quantizer(Module& model, const std::string& path) {
  return dynamic_cast<TensorQuantizer&>(model.at(path));
}

TEST(QuantizationError, IsTheMeanSquareErrorOfEachQuantizer) {
  const Tensor images = random_tensor({24, 1, 8, 8}, -1, 1);
  const auto model = calibrated(images);
  DataLoader data = loader(images);
  const auto errors = compute_quantization_mse(*model, data);
  EXPECT_EQ(errors.size(), 8U);
  const auto found = std::ranges::find(errors, "conv1.input_quantizer", &QuantizationError::name);
  ASSERT_NE(found, errors.end());
  const double scale = quantizer(*model, "conv1.input_quantizer").scale().item();
  double sum = 0, signal = 0;
  for (const float x : images.to_vector<float>()) {
    const double error = std::nearbyint(x / static_cast<float>(scale)) * scale - static_cast<double>(x);
    sum += error * error;
    signal += static_cast<double>(x) * static_cast<double>(x);
  }
  EXPECT_EQ(found->elements, images.numel());
  EXPECT_NEAR(found->mse, sum / static_cast<double>(images.numel()), 1e-6 * scale * scale);  // values are f32
  EXPECT_NEAR(found->sqnr_db(), 10 * std::log10(signal / sum), 1e-3);
  EXPECT_TRUE(model->training());
  const int before = detail::threads();
  for (const int threads : {1, 4}) {
    detail::set_threads(threads);
    const auto again = compute_quantization_mse(*model, data);
    for (std::size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(again[i].mse, errors[i].mse) << errors[i].name;
  }
  detail::set_threads(before);
}

TEST(QuantizationError, SupportsPatternsSampleCountsAndZeros) {
  const auto model = calibrated(random_tensor({24, 1, 8, 8}, -1, 1));
  DataLoader zeros = loader(Tensor::zeros({24, 1, 8, 8}));
  const auto errors = compute_quantization_mse(*model, zeros, 10, "conv1.input*");
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].elements, 10 * 64);
  EXPECT_EQ(errors[0].mse, 0);
  EXPECT_EQ(errors[0].sqnr_db(), 0);
  EXPECT_THROW((void)compute_quantization_mse(*model, zeros, 0, "conf1*"), ArgumentError);
  EXPECT_THROW((void)compute_quantization_mse(*model, zeros, -1), ArgumentError);
  auto fresh = residual_net();
  quantize(*fresh, QuantConfig::preset("int8"), {1, 1, 8, 8});
  EXPECT_THROW((void)compute_quantization_mse(*fresh, zeros), ArgumentError);
}

TEST(PostprocessAmax, MultipliesBoundsAndRaisesByPattern) {
  const auto model = calibrated(random_tensor({24, 1, 8, 8}, -1, 1));
  auto& input = quantizer(*model, "conv1.input_quantizer");
  auto& weight = quantizer(*model, "fc.weight_quantizer");
  const Tensor untouched = weight.amax().clone();
  input.set_amax(Tensor::scalar(0.75));
  EXPECT_EQ(postprocess_amax(*model, {.pattern = "conv1.input*", .multiply = 2}), 1);
  EXPECT_EQ(input.amax().item(), 1.5);
  postprocess_amax(*model, {.pattern = "conv1.input*", .pow2 = true});
  EXPECT_EQ(input.amax().item(), 2);
  postprocess_amax(*model, {.pattern = "conv1.input*", .pow2 = true});
  EXPECT_EQ(input.amax().item(), 2);
  postprocess_amax(*model, {.pattern = "conv1.input*", .maximum = 0.5});
  EXPECT_EQ(input.amax().item(), 0.5);
  postprocess_amax(*model, {.pattern = "conv1.input*", .minimum = 4});
  EXPECT_EQ(input.amax().item(), 4);
  EXPECT_TRUE(bitwise_equal(weight.amax(), untouched));
  postprocess_amax(*model, "fc.weight_quantizer", [](float amax) { return amax * 0.5f; });
  for (std::int64_t i = 0; i < untouched.numel(); ++i)
    EXPECT_EQ(weight.amax().data<float>()[i], untouched.data<float>()[i] * 0.5f);
}

TEST(PostprocessAmax, RejectsInvalidRangesWithoutChange) {
  const auto model = calibrated(random_tensor({24, 1, 8, 8}, -1, 1));
  const double before = quantizer(*model, "conv1.input_quantizer").amax().item();
  EXPECT_THROW(postprocess_amax(*model, {.pattern = "conf*"}), ArgumentError);
  EXPECT_THROW(postprocess_amax(*model, {.pattern = "*", .multiply = 0}), ArgumentError);
  EXPECT_THROW(postprocess_amax(*model, {.pattern = "*", .minimum = 2, .maximum = 1}), ArgumentError);
  EXPECT_THROW(postprocess_amax(*model, {.pattern = "*", .multiply = 1e300}), ArgumentError);
  EXPECT_THROW(postprocess_amax(*model, "*", [](float) { return -1.0f; }), ArgumentError);
  EXPECT_EQ(quantizer(*model, "conv1.input_quantizer").amax().item(), before);
}

}  // namespace
}  // namespace fq::quantization_error_test
