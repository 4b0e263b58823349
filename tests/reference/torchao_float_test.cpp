#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao::torchao_float_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float kInf = std::numeric_limits<float>::infinity();

template <class F>
void expect_error(F f, const char* part) {
  EXPECT_THAT([&] { (void)f(); }, ThrowsMessage<ArgumentError>(HasSubstr(part)));
}

std::vector<int> code_bytes(const Tensor& codes) {
  const auto* bytes = static_cast<const std::uint8_t*>(codes.raw());
  return {bytes, bytes + codes.nbytes()};
}

Tensor ramp(Shape shape, float from = -4.0f, float step = 0.37f) {
  std::vector<float> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = step * static_cast<float>(i) + from;
  return Tensor::from(values, std::move(shape));
}

TEST(TorchaoFloat8, ComputesOneScalePerBlock) {
  const Tensor x = Tensor::from({-896.0f, 1.0f, 2.0f, 448.0f}, {2, 2});
  EXPECT_EQ(choose_scale_float8(x, {1, 2}).to_vector<float>(), (std::vector<float>{2, 1}));
  EXPECT_EQ(choose_scale_float8(x, {2, 2}, DType::f8_e5m2).shape(), (Shape{1, 1}));
  EXPECT_EQ(choose_scale_float8(x, {1, 2}, DType::f8_e4m3, {.hp_value_ub = 44.8}).to_vector<float>()[0],
            44.8f / 448.0f);
  const Tensor three = Tensor::from({3 * 448.0f});
  EXPECT_EQ(choose_scale_float8(three, {1}, DType::f8_e4m3, {.scale_dtype = DType::f8_e8m0}).item(), 4);
}

TEST(TorchaoFloat8, RoundTripsCodes) {
  const Tensor x = ramp({4, 6}), scale = Tensor::from({0.5f, 0.25f}, {2, 1});
  const Tensor y = dequantize_affine_float8(quantize_affine_float8(x, scale), scale);
  const auto a = x.to_vector<float>(), b = y.to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], std::fabs(a[i]) / 16 + 1e-3f);
  EXPECT_TRUE(bitwise_equal(quantize_affine_float8(y, scale), quantize_affine_float8(x, scale)));
}

TEST(TorchaoFloat8, RejectsInvalidArguments) {
  const Tensor x = ramp({4, 6}), one = Tensor::full({1}, 1);
  expect_error([&] { return choose_scale_float8(x, {1, 4}); }, "does not divide");
  expect_error([&] { return choose_scale_float8(x, {1, 1}); }, "a block of all ones");
  expect_error([&] { return choose_scale_float8(x, {4, 6}, DType::i8); }, "use f8_e4m3 or f8_e5m2");
  expect_error(
      [&] {
        return choose_scale_float8(x, {4, 6}, DType::f8_e4m3, {.scale_dtype = DType::f16});
      },
      "use f32 or f8_e8m0");
  expect_error([&] { return choose_scale_float8(x.to(DType::i32), {4, 6}); }, "the input is i32");
  expect_error([&] { return quantize_affine_float8(x, Tensor::full({3, 6}, 1)); }, "whose sizes divide");
  expect_error([&] { return quantize_affine_float8(x, Tensor::full({6}, 1)); }, "of the same rank");
  expect_error([&] { return quantize_affine_float8(x, one.to(DType::i32)); }, "the scale is i32");
  expect_error([&] { return dequantize_affine_float8(x, one); }, "codes of f32");
  expect_error([&] { return dequantize_affine_float8(Tensor::zeros({2}, DType::f8_e4m3), one, DType::i8); },
               "the output is i8");
}

TEST(TorchaoFloatx, RoundTripsEveryCode) {
  for (int ebits = 1; ebits <= 5; ++ebits)
    for (int mbits = 1; ebits + mbits <= 7; ++mbits) {
      Tensor codes = Tensor::empty({std::int64_t{2} << (ebits + mbits)}, DType::u8);
      for (std::int64_t i = 0; i < codes.numel(); ++i)
        codes.mutable_data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i);
      EXPECT_TRUE(bitwise_equal(cast_floatx(decode_floatx(codes, ebits, mbits), ebits, mbits), codes))
          << ebits << " " << mbits;
    }
}

TEST(TorchaoFloatx, RoundsHalfToEvenAndSaturates) {
  const Tensor x = Tensor::from({0.25f, 0.75f, 2.5f, 5.0f, 7.0f, -kInf, -0.0f});
  EXPECT_EQ(code_bytes(cast_floatx(x, 2, 1)), (std::vector<int>{0, 2, 4, 6, 7, 15, 8}));
}

TEST(TorchaoFloatx, RejectsInvalidArguments) {
  expect_error([] { return cast_floatx(Tensor::zeros({1}), 5, 3); }, "7 together at most");
  expect_error([] { return cast_floatx(Tensor::zeros({1}), 0, 3); }, "ebits 0");
  expect_error([] { return cast_floatx(Tensor::zeros({1}, DType::f16), 2, 1); }, "use f32");
  expect_error([] { return decode_floatx(Tensor::zeros({1}), 2, 1); }, "one code a byte");
}

TEST(TorchaoMx, ComputesScalesInEveryMode) {
  const Tensor x = Tensor::from({7.5f, 0.0f}, {1, 2});
  const auto scale = [&](ScalingMode mode) { return code_bytes(to_mx(x, {2, 1}, 2, mode).scale)[0]; };
  EXPECT_EQ(scale(ScalingMode::floor), 127);
  EXPECT_EQ(scale(ScalingMode::ceil), 128);
  EXPECT_EQ(scale(ScalingMode::even), 128);
  EXPECT_EQ(scale(ScalingMode::rceil), 128);
}

TEST(TorchaoMx, RoundTripsGridValues) {
  for (const FloatFormat element :
       {FloatFormat{4, 3}, FloatFormat{5, 2}, FloatFormat{3, 2}, FloatFormat{2, 3}, FloatFormat{2, 1}})
    for (const ScalingMode mode :
         {ScalingMode::floor, ScalingMode::ceil, ScalingMode::even, ScalingMode::rceil}) {
      const Tensor x = ramp({3, 64}, -20.0f, 0.21f);
      const ScaledCodes mx = to_mx(x, element, 32, mode);
      EXPECT_EQ(mx.scale.shape(), (Shape{3, 2}));
      const Tensor y = to_dtype(mx, element, 32);
      const Tensor again = to_dtype(to_mx(y, element, 32, ScalingMode::floor), element, 32);
      EXPECT_TRUE(mode != ScalingMode::floor || bitwise_equal(again, y)) << element.exponent;
    }
}

TEST(TorchaoMx, RejectsInvalidArguments) {
  const Tensor x = ramp({2, 33});
  expect_error([&] { return to_mx(x, {4, 3}); }, "do not divide the last axis");
  expect_error([&] { return to_mx(x, {4, 3}, 0); }, "do not divide");
  expect_error([&] { return to_mx(Tensor::scalar(1), {4, 3}, 1); }, "do not divide");
  expect_error([&] { return to_mx(x, {2, 1}, 3); }, "is odd");
  expect_error([&] { return to_mx(x, {4, 2}, 3); }, "the element (4, 2)");
  expect_error([&] { return to_mx(x.to(DType::f16), {4, 3}, 3); }, "use f32 or bf16");
  expect_error([] { return scaling_mode("ROUND"); }, "FLOOR, CEIL, EVEN or RCEIL");
  const ScaledCodes mx = to_mx(x, {4, 3}, 11);
  expect_error([&] { return to_dtype(mx, {5, 2}, 11); }, "use f8_e5m2");
  expect_error([&] { return to_dtype(mx, {4, 3}, 3); }, "use [2, 11]");
  expect_error([&] { return to_dtype(mx, {4, 3}, 11, DType::i8); }, "the output is i8");
}

TEST(TorchaoNvfp4, SmallestScaleIsNormal) {
  const Tensor zeros = Tensor::zeros({1, 16});
  EXPECT_EQ(code_bytes(nvfp4_quantize(zeros).scale)[0], 0x08);
  const Tensor x = Tensor::full({1, 16}, 6);
  const ScaledCodes q = nvfp4_quantize(x, Tensor::scalar(0.5));
  EXPECT_EQ(code_bytes(q.scale)[0], 0x40);
  EXPECT_EQ(code_bytes(q.codes)[0], 0x77);
}

TEST(TorchaoNvfp4, SupportsOneOuterScalePerRow) {
  const Tensor x = ramp({2, 32}), scales = Tensor::from({0.5f, 0.01f}, {2, 1});
  const ScaledCodes both = nvfp4_quantize(x, scales);
  for (std::int64_t row = 0; row < 2; ++row) {
    const ScaledCodes one = nvfp4_quantize(x.slice(row, row + 1), scales.slice(row, row + 1));
    EXPECT_TRUE(bitwise_equal(both.scale.slice(row, row + 1), one.scale));
    EXPECT_TRUE(bitwise_equal(both.codes.slice(row, row + 1), one.codes));
  }
}

TEST(TorchaoNvfp4, RejectsInvalidArguments) {
  expect_error([] { return nvfp4_quantize(Tensor::zeros({2, 24})); }, "divisible by 16");
  expect_error([] { return nvfp4_quantize(Tensor::zeros({32})); }, "needs 2 axes");
  expect_error([] { return nvfp4_quantize(Tensor::zeros({2, 16}, DType::f16)); }, "use f32 or bf16");
  expect_error(
      [] {
        return nvfp4_quantize(Tensor::zeros({2, 16}), Tensor::zeros({3}));
      },
      "use one element, or [2, 1]");
  expect_error(
      [] {
        return nvfp4_quantize(Tensor::zeros({2, 16}), Tensor::zeros({1}, DType::f64));
      },
      "use f32");
}

}  // namespace
}  // namespace fq::torchao::torchao_float_test
