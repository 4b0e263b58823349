#include <cmath>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "core/operator_run.h"
#include "cuda_device.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/core/quantized.h"

namespace fq::cuda_loss_test {
namespace {

using test::difference;
using test::random_values;

class CudaLoss : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

/// exp and log of the device may be off by two units of the last place; sums are made in f64 there, in order
/// in the values' own type on the CPU: up to 5000 of them.
double loss_tolerance(DType dtype) { return dtype == DType::f64 ? 1e-12 : 3e-5; }

std::vector<Tensor> run_softmax(Device device, const Shape& shape, int axis, DType dtype, bool logarithm) {
  const Variable x(random_values(shape, 1, -9, 9).to(dtype).to(device), true);
  const Variable y = logarithm ? ops::log_softmax(x, axis) : ops::softmax(x, axis);
  y.backward(random_values(shape, 2).to(dtype).to(device));
  return {y.tensor(), x.grad()};
}

TEST_F(CudaLoss, SoftmaxHandlesRowsOfManyLengths) {
  const std::vector<std::pair<Shape, int>> cases{{{1000, 1}, 1}, {{777, 10}, 1},     {{129, 129}, 1},
                                                 {{3, 5003}, 1}, {{5, 300, 17}, 1},  {{900, 3}, 0},
                                                 {{0, 4}, 1},    {{2, 3, 50, 20}, 1}};
  for (const auto& [shape, axis] : cases)
    for (const DType dtype : {DType::f32, DType::f64})
      for (const bool logarithm : {false, true})
        EXPECT_EQ(
            difference(run_softmax(Device::cuda(), shape, axis, dtype, logarithm),
                       run_softmax(Device::cpu(), shape, axis, dtype, logarithm), loss_tolerance(dtype)),
            "")
            << to_string(shape) << name(dtype) << logarithm;
}

TEST_F(CudaLoss, LargeLogitsStayFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from({1e4f, -1e4f, 9999.0f, -infinity}, {1, 4});
  const auto y = ops::softmax(x.to(Device::cuda())).tensor(), expected = ops::softmax(x).tensor();
  EXPECT_EQ(difference({y}, {expected}, 1e-6), "");
}

Tensor labels(std::int64_t rows, std::int64_t classes) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i * 7 + 3) % classes;
  return Tensor::from(values, {rows});
}

std::vector<Tensor> run_cross_entropy(Device device, const Shape& shape, DType dtype, double smoothing,
                                      std::optional<std::int64_t> ignored = {}, const Tensor& weights = {}) {
  const Variable x(random_values(shape, 1, -5, 5).to(dtype).to(device), true);
  const Variable loss =
      ops::cross_entropy(x, labels(shape[0], shape[1]).to(device), smoothing, ignored, weights);
  ops::scale(loss, 3.0).backward();  // the seed comes from the device
  return {loss.tensor(), x.grad()};
}

TEST_F(CudaLoss, CrossEntropyMatchesTheCpuForManySizes) {
  for (const Shape& shape : {Shape{1, 2}, Shape{512, 10}, Shape{3001, 3}, Shape{17, 1001}, Shape{0, 5}})
    for (const DType dtype : {DType::f32, DType::f64})
      for (const double smoothing : {0.0, 0.1, 1.0})
        EXPECT_EQ(
            difference(run_cross_entropy(Device::cuda(), shape, dtype, smoothing),
                       run_cross_entropy(Device::cpu(), shape, dtype, smoothing), loss_tolerance(dtype)),
            "")
            << to_string(shape) << name(dtype) << smoothing;
}

TEST_F(CudaLoss, IgnoresMaskedRows) {
  for (const Shape& shape : {Shape{512, 10}, Shape{17, 1001}, Shape{1, 2}})
    for (const double smoothing : {0.0, 0.1})
      for (const std::int64_t ignored : {std::int64_t{1}, std::int64_t{3}, std::int64_t{-100}})
        EXPECT_EQ(difference(run_cross_entropy(Device::cuda(), shape, DType::f64, smoothing, ignored),
                             run_cross_entropy(Device::cpu(), shape, DType::f64, smoothing, ignored),
                             loss_tolerance(DType::f64)),
                  "")
            << to_string(shape) << smoothing << ignored;
}

TEST_F(CudaLoss, SupportsClassWeights) {
  for (const Shape& shape : {Shape{512, 10}, Shape{17, 1001}, Shape{1, 2}})
    for (const DType dtype : {DType::f32, DType::f64})
      for (const double smoothing : {0.0, 0.1})
        for (const std::int64_t ignored : {std::int64_t{1}, std::int64_t{-100}}) {
          const Tensor weights = random_values({shape[1]}, 5, 0, 4).to(dtype);
          const auto right = run_cross_entropy(Device::cpu(), shape, dtype, smoothing, ignored, weights);
          const auto found = run_cross_entropy(Device::cuda(), shape, dtype, smoothing, ignored, weights);
          EXPECT_EQ(difference(found, right, loss_tolerance(dtype)), "")
              << to_string(shape) << name(dtype) << smoothing << ignored;
        }
}

constexpr std::int64_t kWindows = 3, kTokens = 37, kWidth = 40, kVocabulary = 4099;

/// Loss and gradients of a head of int8 codes whose logits [N, L, C] are transposed for the loss.
std::vector<Tensor> run_head(Device device, bool rounded, double smoothing) {
  const auto grid = [&](float amax) {
    return Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::full({}, amax, DType::f32, device),
                           "head");
  };
  const Variable x(random_values({kWindows, kTokens, kWidth}, 1).to(DType::f32).to(device), true);
  const Variable w(random_values({kVocabulary, kWidth}, 2).to(DType::f32).to(device), true);
  const Variable sums = ops::linear(ops::quantize(x, grid(2)), ops::quantize(w, grid(2)));
  const Variable logits = ops::transpose(rounded ? sums.as_float() : sums, {0, 2, 1});
  const Tensor target = labels(kWindows * kTokens, kVocabulary).reshape({kWindows, kTokens}).to(device);
  const Variable loss = ops::cross_entropy(logits, target, smoothing, 10);
  loss.backward();
  return {loss.tensor(), x.grad(), w.grad()};
}

/// The sums are read as rows, without the transposed copy: the same floats in the same order.
TEST_F(CudaLoss, TransposedSumsGiveTheBitsOfTheirFloats) {
  for (const Device device : {Device::cuda(), Device::cpu()})
    for (const double smoothing : {0.0, 0.1}) {
      const auto found = run_head(device, false, smoothing), expected = run_head(device, true, smoothing);
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(bitwise_equal(found[i], expected[i])) << i;
    }
}

TEST_F(CudaLoss, LanguageModelHeadMatchesTheCpu) {
  // Gradients of products are bf16: two factors are rounded to 8 bits.
  const auto found = run_head(Device::cuda(), false, 0.1), expected = run_head(Device::cpu(), false, 0.1);
  EXPECT_EQ(difference({found[0]}, {expected[0]}, 1e-6), "");
  EXPECT_EQ(difference({found[1], found[2]}, {expected[1], expected[2]}, 1e-4), "");
}

/// The sums and one tensor of floats: the gradient takes the place of the logits.
TEST_F(CudaLoss, NeedsOneTensorOfTheSizeOfTheLogits) {
  const std::int64_t rows = 512, classes = 8192, bytes = rows * classes * 4;
  const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_tensor(),
                                    Tensor::full({}, 1, DType::f32, Device::cuda()), "head");
  const Variable x(Tensor::full({2, rows / 2, 16}, 0.5, DType::f32, Device::cuda()), true);
  const Variable w = ops::quantize(Tensor::full({classes, 16}, 0.25, DType::f32, Device::cuda()), grid);
  const Tensor target = labels(rows, classes).reshape({2, rows / 2}).to(Device::cuda());
  (void)ops::linear(ops::quantize(x, grid), w).as_float().tensor();  // makes the workspace of products
  const auto before = memory_stats(Device::cuda()).in_use;
  reset_peak_memory(Device::cuda());
  const auto logits = [&] { return ops::transpose(ops::linear(ops::quantize(x, grid), w), {0, 2, 1}); };
  const Variable loss = ops::cross_entropy(logits(), target);
  EXPECT_LE(memory_stats(Device::cuda()).peak - before, 2 * bytes + bytes / 8);
  EXPECT_LE(memory_stats(Device::cuda()).in_use - before, bytes + bytes / 8);  // the sums are gone
  const std::int64_t launches = test::launches_so_far();
  loss.backward();
  // The rounded gradient of the product has half of the size.
  EXPECT_LE(memory_stats(Device::cuda()).peak - before, 2 * bytes + bytes / 8);
  EXPECT_LE(test::launches_so_far() - launches, 10);
}

TEST_F(CudaLoss, KeepsLogitsThatOthersRead) {
  const Variable x(random_values({64, 300}, 1).to(DType::f32).to(Device::cuda()), true);
  const Variable logits = ops::scale(x, 2.0);
  const Tensor before = logits.tensor().clone();
  ops::cross_entropy(logits, labels(64, 300).to(Device::cuda())).backward();
  EXPECT_TRUE(bitwise_equal(logits.tensor(), before));
}

TEST_F(CudaLoss, SpecialLogits) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const float special : {infinity, -infinity, nan}) {
    Tensor x = random_values({5, 2050}, 3).to(DType::f32);
    x.mutable_data<float>()[2 * 2050 + 7] = special;
    const auto run = [&](Device device) {
      const Variable logits(x.to(device), true);
      ops::cross_entropy(logits, labels(5, 2050).to(device)).backward();
      return logits.grad().to(Device::cpu());
    };
    const Tensor found = run(Device::cuda()), expected = run(Device::cpu());
    for (std::int64_t i = 0; i < found.numel(); ++i) {
      const float a = found.data<float>()[i], b = expected.data<float>()[i];
      ASSERT_TRUE(std::isnan(a) == std::isnan(b) && (std::isnan(a) || std::abs(a - b) < 1e-6f)) << i;
    }
  }
}

std::string error_message(const Tensor& tensor) {
  try {
    static_cast<void>(tensor.to(Device::cpu()));
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

TEST_F(CudaLoss, ReportsInvalidLabelsOnRead) {
  for (const std::int64_t label : {std::int64_t{-1}, std::int64_t{4}, std::int64_t{1} << 40})
    for (const double smoothing : {0.0, 0.2}) {
      const Tensor weights = label == 4 ? Tensor::full({4}, 2) : Tensor();
      const Variable x(Tensor::zeros({3, 4}, DType::f32, Device::cuda()), true);
      const auto loss = ops::cross_entropy(x, Tensor::from<std::int64_t>({0, label, 3}).to(Device::cuda()),
                                           smoothing, {}, weights);
      loss.backward();
      EXPECT_EQ(error_message(loss.tensor()), "[cross_entropy] label: a value is not in 0 to 3");
      EXPECT_EQ(error_message(loss.tensor()), "");
    }
}

TEST_F(CudaLoss, RejectsTensorsOnTwoDevices) {
  const Tensor x = Tensor::zeros({3, 4}, DType::f32, Device::cuda());
  EXPECT_THROW((void)ops::cross_entropy(x, labels(3, 4)), ArgumentError);
  EXPECT_THROW((void)ops::embedding(labels(3, 3), x), ArgumentError);
  EXPECT_THROW((void)ops::batch_norm(x, {}, {}, Tensor::zeros({4}), Tensor::zeros({4}), true), ArgumentError);
}

TEST_F(CudaLoss, ComputesSquaredDistances) {
  const auto run = [](Device device, const Shape& shape, DType dtype, Layout layout) {
    const auto value = [&](unsigned seed) { return random_values(shape, seed).to(dtype); };
    const Variable a((shape.size() == 4 ? value(1).to(layout) : value(1)).to(device), true);
    const Variable b(value(2).to(device), true);
    const Variable loss = ops::mse_loss(a, b);
    ops::scale(loss, -2.0).backward();
    return std::vector<Tensor>{loss.tensor(), a.grad(), b.grad()};
  };
  for (const Shape& shape : {Shape{20011}, Shape{3, 5, 41, 17}, Shape{1}, Shape{0}})
    for (const DType dtype : {DType::f32, DType::f64})
      for (const Layout layout : {Layout::row_major, Layout::channels_last})
        EXPECT_EQ(difference(run(Device::cuda(), shape, dtype, layout),
                             run(Device::cpu(), shape, dtype, layout), loss_tolerance(dtype)),
                  "")
            << to_string(shape) << name(dtype);
}

}  // namespace
}  // namespace fq::cuda_loss_test
