#include "fakequant/reference/pytorch_quantization.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/reference/modelopt.h"

namespace fq::pytorch_quantization::pytorch_quantization_test::pytorch_quantization_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> values(const Tensor& x) { return x.to(DType::f32).to_vector<float>(); }

template <class F>
void expect_error(F&& f, const char* part) {
  EXPECT_THAT([&] { (void)f(); }, ThrowsMessage<ArgumentError>(HasSubstr(part)));
}

TEST(TensorQuant, ReturnsCodesAndScale) {
  const Tensor x = Tensor::from({-3.0f, -0.3f, 0.24f, 0.5f, kInf, kNaN});
  const auto [codes, scale] = tensor_quant(x, 1.5, 4);
  EXPECT_EQ(scale.item(), static_cast<double>(7.0f / 1.5f));
  EXPECT_EQ(scale.rank(), 0);
  const auto q = values(codes);
  EXPECT_EQ(std::vector<float>(q.begin(), q.end() - 1), (std::vector<float>{-7, -1, 1, 2, 7}));
  EXPECT_TRUE(std::isnan(q.back()));
  EXPECT_EQ(values(tensor_quant(x, 1.5, 4, false, false).codes)[0], -8);
  const Tensor whole = tensor_quant(x, 1.5, 4, false, true, DType::i32).codes;
  EXPECT_EQ(whole.to_vector<std::int32_t>(), (std::vector<std::int32_t>{-7, -1, 1, 2, 7, 0}));
  EXPECT_EQ(tensor_quant(x.to(DType::f16), 1.5, 4, false, true, DType::f32).codes.dtype(), DType::f32);
}

TEST(TensorQuant, UsesScaleOneForAZeroRange) {
  const Tensor x = Tensor::from({1.0f, 1.0f}, {2, 1});
  const auto [codes, scale] = tensor_quant(x, Tensor::from({0x1p-24f, 1.0f}, {2, 1}));
  EXPECT_EQ(values(codes), (std::vector<float>{0, 127}));
  EXPECT_EQ(values(scale), (std::vector<float>{1, 127}));
  EXPECT_EQ(scale.shape(), (Shape{2, 1}));
}

TEST(TensorQuant, AcceptsAGradientForItsScale) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const Variable x(Tensor::from({0.5f, -1.0f, 2.0f}).to(dtype), true);
    const auto [codes, scale] = tensor_quant(x, 1.0);
    EXPECT_EQ(scale.tensor().dtype(), dtype);
    codes.backward(Tensor::from({1.0f, 2.0f, 3.0f}).to(dtype));
    scale.backward(Tensor::scalar(5, dtype));
    EXPECT_EQ(values(x.grad()), (std::vector<float>{1, 2, 0}));
    EXPECT_EQ(x.grad().dtype(), dtype);
  }
  const Variable x(Tensor::from({0.5f, -1.0f, 2.0f}), true);
  tensor_quant(x, 1.0, 8, false, true, DType::i32).codes.backward(Tensor::full({3}, 1));
  EXPECT_EQ(values(x.grad()), (std::vector<float>{1, 1, 0}));
}

TEST(TensorQuant, LegacyFunctionMatchesFakeTensorQuant) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<float> v(3000);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 701) / 350 - 1;
    const Tensor x = Tensor::from(v, {30, 2, 50}).to(dtype), amax = Tensor::from({0.7f, 0.0f}, {2, 1});
    EXPECT_TRUE(bitwise_equal(legacy_fake_tensor_quant(x, amax, 6), fake_tensor_quant(x, amax, {}, 6)));
    const Variable a(x, true), b(x, true);
    legacy_fake_tensor_quant(a, amax).backward(x);
    fake_tensor_quant(b, amax).backward(x);
    EXPECT_TRUE(bitwise_equal(a.grad(), b.grad()));
  }
}

TEST(TensorQuant, RejectsInvalidArguments) {
  const Tensor x = Tensor::from({1.0f, -2.0f, 3.0f, 4.0f}, {2, 2});
  expect_error([&] { return tensor_quant(x, -1.0); }, "must not be negative");
  expect_error([&] { return tensor_quant(x, Amax()); }, "amax is missing");
  expect_error([&] { return tensor_quant(x, Tensor::zeros({0})); }, "amax is missing");
  expect_error([&] { return tensor_quant(x, {1.0, 2.0, 3.0}); }, "do not broadcast");
  EXPECT_EQ(tensor_quant(x, Tensor::full({3, 1, 1}, 1.0)).codes.shape(), (Shape{3, 2, 2}));
  expect_error([&] { return tensor_quant(x, 1.0, 8, true); }, "use a signed one");
  expect_error([&] { return tensor_quant(Tensor::zeros({0}), 1.0, 8, true); }, "no elements");
  expect_error([&] { return tensor_quant(x, 1.0, 0); }, "1 to 16");
  expect_error([&] { return tensor_quant(x, 1.0, 17); }, "1 to 16");
  expect_error([&] { return tensor_quant(x, 1.0, 8, false, true, DType::i8); }, "use f32 or i32");
  expect_error([&] { return tensor_quant(x.to(DType::f16), 1e-3); }, "too large for f16");
  EXPECT_EQ(tensor_quant(x.to(DType::f64), 1.0).codes.dtype(), DType::f64);
  expect_error([&] { return tensor_quant(x.to(DType::i8), 1.0); }, "f16 or bf16");
  expect_error([&] { return legacy_fake_tensor_quant(x, -1.0); }, "must not be negative");
  expect_error([&] { return legacy_fake_tensor_quant(x.to(DType::i32), 1.0); }, "f32, f16 or bf16");
  EXPECT_NO_THROW((void)tensor_quant(Tensor::from({kNaN, -1.0f}), 1.0, 8, true));
  EXPECT_NO_THROW((void)tensor_quant(x.to(DType::bf16), 1e-3));
  EXPECT_NO_THROW((void)tensor_quant(x.to(DType::f16), {1e-9, 1.0}));
  EXPECT_NO_THROW((void)legacy_fake_tensor_quant(x.to(DType::f16), 1e-3));
}

TEST(FakeAffine, KeepsZeroAndGridValues) {
  const Tensor x = Tensor::from({-2.0f, -1.0f, 0.0f, 0.1f, 3.0f, 9.0f});
  const auto y = values(fake_affine_tensor_quant(x, -1.0, 3.0, 2));  // step 4/3: -4/3, 0, 4/3, 8/3
  const float step = 4.0f / 3.0f;
  EXPECT_EQ(y, (std::vector<float>{-step, -step, 0, 0, 2 * step, 2 * step}));
  const auto rows =
      values(fake_affine_tensor_quant(Tensor::from({0.3f, 0.3f}, {2, 1}), Tensor::from({0.0f, 0.0f}, {2, 1}),
                                      Tensor::from({3.0f, 0.3f}, {2, 1}), 2));
  EXPECT_EQ(rows[0], 0);
  EXPECT_NEAR(rows[1], 0.3f, 1e-7);
}

TEST(FakeAffine, GradientPassesWithinTheRange) {
  const Variable x(Tensor::from({-1.0f, -1.1f, 3.0f, 3.1f, kNaN}), true);
  fake_affine_tensor_quant(x, -1.0, 3.0).backward(Tensor::full({5}, 1));
  EXPECT_EQ(values(x.grad()), (std::vector<float>{1, 0, 1, 0, 0}));
}

TEST(FakeAffine, RoundsEveryStepToSixteenBits) {
  const Tensor x = Tensor::from({0.3f, 100.0f}).to(DType::f16);
  const auto fl = [](float v) { return static_cast<float>(float16(v)); };
  const float step = 1000.0f / 255.0f;
  const auto y = fake_affine_tensor_quant(x, 0.0, 1000.0);
  EXPECT_EQ(y.dtype(), DType::f16);
  const float code = std::nearbyint(fl(100.0f / step)) - 128;
  EXPECT_EQ(values(y)[1], fl(fl(code + 128) * step));
  EXPECT_EQ(fake_affine_tensor_quant(x, {0.0, 0.0}, {1000.0, 1.0}).dtype(), DType::f32);
}

TEST(FakeAffine, RejectsInvalidArguments) {
  const Tensor x = Tensor::zeros({2, 2});
  expect_error([&] { return fake_affine_tensor_quant(x, Amax(), 1.0); }, "both be given");
  expect_error([&] { return fake_affine_tensor_quant(x, 0.0, {1.0, 2.0}); }, "one shape");
  expect_error(
      [&] {
        return fake_affine_tensor_quant(x, {0.0, 0.0, 0.0}, {1.0, 1.0, 1.0});
      },
      "does not broadcast");
  expect_error([&] { return fake_affine_tensor_quant(x, 0.0, 1.0, 1); }, "2 to 16");
  expect_error([&] { return fake_affine_tensor_quant(x.to(DType::i8), 0.0, 1.0); }, "f32, f16 or bf16");
}

TEST(Clip, RoutesGradientsToTheSelectedInput) {
  const Variable x(Tensor::from({-2.0f, -1.0f, 0.0f, 1.0f, 5.0f, kNaN}), true);
  const Variable low(Tensor::scalar(-1), true), high(Tensor::from({1.0f}), true);
  const Variable y = clip(x, low, high);
  const auto v = values(y.tensor());
  EXPECT_EQ(std::vector<float>(v.begin(), v.end() - 1), (std::vector<float>{-1, -1, 0, 1, 1}));
  EXPECT_TRUE(std::isnan(v.back()));
  y.backward(Tensor::from({1.0f, 2.0f, 4.0f, 8.0f, 16.0f, 32.0f}));
  EXPECT_EQ(values(x.grad()), (std::vector<float>{0, 0, 4, 0, 0, 0}));
  EXPECT_EQ(values(low.grad()), (std::vector<float>{3}));
  EXPECT_EQ(values(high.grad()), (std::vector<float>{24}));
  EXPECT_EQ(low.grad().rank(), 0);
  EXPECT_EQ(high.grad().shape(), (Shape{1}));
}

TEST(Clip, AcceptsOneBoundPerChannel) {
  const Tensor x = Tensor::from({-2.0f, 2.0f, -2.0f, 2.0f}, {2, 2});
  const Variable low(Tensor::scalar(-3), true), high(Tensor::from({1.0f, 3.0f}, {2, 1}), true);
  const Variable y = clip(Variable(x), low, high);
  EXPECT_EQ(values(y.tensor()), (std::vector<float>{-2, 1, -2, 2}));
  y.backward(Tensor::full({2, 2}, 1));
  EXPECT_EQ(values(high.grad()), (std::vector<float>{1, 0}));
  EXPECT_EQ(values(low.grad()), (std::vector<float>{0}));
}

TEST(Clip, HandlesCrossedAndMissingBounds) {
  EXPECT_EQ(values(clip(Tensor::from({0.0f, 5.0f}), 2.0, 1.0)), (std::vector<float>{2, 2}));
  for (const float v : values(clip(Tensor::from({0.0f, 5.0f}), static_cast<double>(kNaN), 1.0)))
    EXPECT_TRUE(std::isnan(v));
  const Tensor x = Tensor::zeros({2, 2});
  expect_error([&] { return clip(x, Amax(), 1.0); }, "a bound is missing");
  expect_error([&] { return clip(Variable(x), Variable(), Variable(x)); }, "a bound is missing");
  expect_error([&] { return clip(x, {0.0, 1.0}, {1.0, 2.0, 3.0}); }, "use one shape");
  expect_error([&] { return clip(x, {0.0, 1.0, 2.0}, {1.0, 2.0, 3.0}); }, "does not broadcast");
  expect_error([&] { return clip(x.to(DType::i32), 0.0, 1.0); }, "f32, f16 or bf16");
}

TEST(PytorchQuantization, KeepsTypeLayoutAndRunsOnMeta) {
  const Tensor x = Tensor::from(std::vector<float>(24, 0.3f), {2, 3, 2, 2}).to(Layout::channels_last);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const Tensor& in :
         {x.to(dtype), Tensor::empty({2, 3, 2, 2}, dtype, Device::meta(), Layout::channels_last)}) {
      const Variable v(in, true);
      const std::vector<Variable> results{
          tensor_quant(v, Tensor::full({3, 1, 1}, 1)).codes, legacy_fake_tensor_quant(v, 1.0),
          fake_affine_tensor_quant(v, 0.0, 1.0), clip(v, Tensor::scalar(0), Tensor::scalar(1))};
      for (const Variable& y : results) {
        EXPECT_EQ(y.tensor().dtype(), dtype);
        EXPECT_EQ(y.layout(), Layout::channels_last);
        EXPECT_EQ(y.device().is_meta(), in.device().is_meta());
        EXPECT_EQ(y.shape(), in.shape());
      }
    }
  EXPECT_EQ(tensor_quant(Tensor::zeros({0, 3}), 1.0).codes.shape(), (Shape{0, 3}));
}

TEST(ScaledE4m3, InfersShapesOnMeta) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    const Tensor meta = Tensor::empty({2, 3}, dtype, Device::meta());
    for (const Amax& amax : {Amax(), Amax(1.0), Amax(Tensor::full({2, 1}, 1))}) {
      const Variable y = scaled_e4m3(Variable(meta, true), amax);
      EXPECT_TRUE(y.device().is_meta());
      EXPECT_EQ(y.shape(), (Shape{2, 3}));
      EXPECT_EQ(y.tensor().dtype(), dtype);
      EXPECT_TRUE(y.requires_grad());
      EXPECT_EQ(scaled_e4m3(meta, amax).shape(), (Shape{2, 3}));
    }
    expect_error([&] { return scaled_e4m3(meta, {1.0, 2.0}); }, "do not broadcast");
    expect_error([&] { return fake_tensor_quant(meta, {1.0, 2.0}); }, "do not broadcast");
  }
}

}  // namespace
}  // namespace fq::pytorch_quantization::pytorch_quantization_test::pytorch_quantization_test
   // fq::pytorch_quantization::pytorch_quantization_test
