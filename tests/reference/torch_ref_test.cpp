#include "fakequant/reference/torch_ref.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"

namespace fq::torch_ref::torch_ref_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class F>
void expect_error(F f, const char* part) {
  EXPECT_THAT([&] { (void)f(); }, ThrowsMessage<ArgumentError>(HasSubstr(part)));
}

Tensor ramp(Shape shape) {
  std::vector<float> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.37f * static_cast<float>(i) - 4.0f;
  return Tensor::from(values, std::move(shape));
}

TEST(TorchFakeQuantize, RoundsBeforeAddingTheZeroPoint) {
  const Tensor x = Tensor::from({0.5f, 1.5f, -0.5f, 300.0f, -300.0f});
  EXPECT_EQ(fake_quantize_per_tensor_affine(x, 1, 1, 0, 255).to_vector<float>(),
            (std::vector<float>{0, 2, 0, 254, -1}));
}

TEST(TorchFakeQuantize, SaturatesSpecialsPerTensorAndWrapsPerChannel) {
  const Tensor x = Tensor::from({kNan, kInf, -kInf, 1e30f}), scale = Tensor::from({1.0f, 1.0f, 1.0f, 1.0f});
  const Tensor zero = Tensor::zeros({4}, DType::i32);
  EXPECT_EQ(fake_quantize_per_tensor_affine(x, 1, 0, -8, 7).to_vector<float>(),
            (std::vector<float>{-8, 7, -8, 7}));
  EXPECT_EQ(fake_quantize_per_channel_affine(x, scale, zero, 0, -8, 7).to_vector<float>(),
            (std::vector<float>{-8, -8, -8, -8}));
}

TEST(TorchFakeQuantize, GradientIsTheMaskedProduct) {
  const Variable x(Tensor::from({-9.0f, -8.0f, 7.0f, 7.6f, kNan}), true);
  fake_quantize_per_tensor_affine(x, 1, 0, -8, 7).backward(Tensor::from({-1.0f, 2.0f, 3.0f, 4.0f, 5.0f}));
  const auto dx = x.grad().to_vector<float>();
  EXPECT_EQ(dx, (std::vector<float>{0, 2, 3, 0, 0}));
  EXPECT_TRUE(std::signbit(dx[0]));
}

TEST(TorchFakeQuantize, EqualChannelScalesMatchOneScale) {
  const Tensor x = ramp({2, 3, 2, 2});
  const Tensor one = fake_quantize_per_tensor_affine(x, 0.3, 3, 0, 15);
  for (int axis = 0; axis < 4; ++axis) {
    const Tensor scale = Tensor::full({x.dim(axis)}, 0.3), zero = Tensor::full({x.dim(axis)}, 3, DType::i32);
    EXPECT_TRUE(bitwise_equal(fake_quantize_per_channel_affine(x, scale, zero, axis, 0, 15), one)) << axis;
  }
  const Tensor last = fake_quantize_per_tensor_affine(x.to(Layout::channels_last), 0.3, 3, 0, 15);
  EXPECT_EQ(last.layout(), Layout::channels_last);
  EXPECT_TRUE(bitwise_equal(last, one));
}

TEST(TorchFakeQuantize, IsIdempotent) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const Tensor y = fake_quantize_per_tensor_affine(ramp({40}).to(dtype), 0.25, 5, 0, 31);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_TRUE(bitwise_equal(fake_quantize_per_tensor_affine(y, 0.25, 5, 0, 31), y));
  }
}

TEST(TorchFakeQuantize, ComparesDoublesInDoublePrecision) {
  const double above = std::nextafter(0.5, 1.0);
  const Variable x(Tensor::from({0.5, above, 8.4}), true);
  const Variable y = fake_quantize_per_tensor_affine(x, 1, 0, -8, 7);
  EXPECT_EQ(y.tensor().to_vector<double>(), (std::vector<double>{0, 1, 7}));
  y.backward(Tensor::from({1.0, 2.0, 3.0}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 2, 0}));
  const Tensor value = Tensor::from({0.3}), tenth = Tensor::from({0.1f}),
               zero = Tensor::zeros({1}, DType::i32);
  EXPECT_EQ(fake_quantize_per_tensor_affine(value, 0.1, 0, -8, 7).item(), 3 * 0.1f);
  EXPECT_EQ(fake_quantize_per_channel_affine(value, tenth, zero, 0, -8, 7).item(), 3 * double{0.1f});
}

/// Positions of torch 2.15: a fused sum of an f32 zero point, two roundings of an f16 one.
TEST(TorchFakeQuantize, FloatZeroPointsAreAddedBeforeRounding) {
  const Tensor x = Tensor::from({-2.6676323413848877f}, {1, 1}), scale = Tensor::from({0.09360113739967346f});
  const auto code = [&](DType dtype) {
    const Tensor zero = Tensor::from({13.0f}).to(dtype);
    const float y = fake_quantize_per_channel_affine(x, scale, zero, 1, -128, 127).to_vector<float>()[0];
    return std::rint(y / scale.to_vector<float>()[0] + 13);
  };
  EXPECT_EQ(code(DType::f32), -15);  // -28.5 + 13 is just above the tie
  EXPECT_EQ(code(DType::f16), -16);
  const Tensor beyond = fake_quantize_per_channel_affine(
      Tensor::from({1.0f, kNan}, {2, 1}), Tensor::from({0.5f}), Tensor::from({100.0f}), 1, -8, 7);
  EXPECT_EQ(beyond.to_vector<float>(), (std::vector<float>{-46.5, -54}));
}

TEST(TorchFakeQuantize, HandlesEmptyAndMetaTensors) {
  EXPECT_EQ(fake_quantize_per_tensor_affine(Tensor::empty({0, 3}), 1, 0, 0, 1).shape(), (Shape{0, 3}));
  const Tensor meta =
      fake_quantize_per_tensor_affine(Tensor::empty({4}, DType::bf16, Device::meta()), 1, 0, 0, 1);
  EXPECT_TRUE(meta.device().is_meta());
  EXPECT_EQ(meta.dtype(), DType::bf16);
}

TEST(TorchFakeQuantize, RejectsInvalidArguments) {
  const Tensor x = ramp({2, 3}), scale = Tensor::full({3}, 1), zero = Tensor::zeros({3}, DType::i32);
  expect_error([&] { return fake_quantize_per_tensor_affine(x, 1, 300, 0, 255); },
               "zero point 300 is outside");
  expect_error([&] { return fake_quantize_per_tensor_affine(x, 1, 0, 7, -8); }, "quant_min 7 is above");
  expect_error([&] { return fake_quantize_per_tensor_affine(x.to(DType::i32), 1, 0, 0, 7); },
               "use f32, f16, bf16 or f64");
  expect_error([&] { return fake_quantize_per_channel_affine(x, scale, zero, 2, 0, 7); }, "use 0 to 1");
  expect_error([&] { return fake_quantize_per_channel_affine(x, scale, zero, -1, 0, 7); }, "axis -1");
  expect_error([&] { return fake_quantize_per_channel_affine(x, scale, zero, 0, 0, 7); }, "use f32 [2]");
  expect_error([&] { return fake_quantize_per_channel_affine(x, scale.to(DType::f64), zero, 1, 0, 7); },
               "f64");
  expect_error(
      [&] { return fake_quantize_per_channel_affine(x, scale, Tensor::zeros({2}, DType::i32), 1, 0, 7); },
      "the zero point is [2]");
  for (const DType dtype : {DType::bf16, DType::f64})
    expect_error([&] { return fake_quantize_per_channel_affine(x, scale, scale.to(dtype), 1, 0, 7); },
                 "use an integer type, f32 or f16");
  expect_error(
      [&] { return fake_quantize_per_channel_affine(x, scale, Tensor::full({3}, 8, DType::i32), 1, 0, 7); },
      "zero point 8 is outside");
}

TEST(TorchLearnable, ComputesGradientsOfScaleAndZeroPoint) {
  const Variable x(Tensor::from({0.3f, -5.0f, 9.0f}), true), scale(Tensor::from({0.5f}), true),
      zero(Tensor::from({1.0f}), true);
  const Variable y = fake_quantize_learnable_per_tensor_affine(x, scale, zero, -4, 3, 2.0);
  EXPECT_EQ(y.tensor().to_vector<float>(), (std::vector<float>{0.5f, -2.5f, 1.0f}));
  y.backward(Tensor::from({1.0f, 10.0f, 100.0f}));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 0, 0}));
  EXPECT_FLOAT_EQ(scale.grad().to_vector<float>()[0], 2.0f * (0.4f + 10 * -5 + 100 * 2));
  EXPECT_FLOAT_EQ(zero.grad().to_vector<float>()[0], 2.0f * -0.5f * 110);
}

TEST(TorchLearnable, RoundsTheZeroPointDifferentlyInBackward) {
  const Variable x(Tensor::from({7.4f}), true), scale(Tensor::from({1.0f}), true),
      zero(Tensor::from({0.5f}), true);
  const Variable y = fake_quantize_learnable_per_tensor_affine(x, scale, zero, 0, 7);
  EXPECT_EQ(y.tensor().item(), 7);
  y.backward(Tensor::from({1.0f}));
  EXPECT_EQ(x.grad().item(), 0);
}

TEST(TorchLearnable, SupportsOneScalePerChannel) {
  const Variable x(ramp({2, 3}), true), scale(Tensor::from({0.5f, 0.25f, 1.0f}), true),
      zero(Tensor::from({0.4f, -0.6f, 20.0f}), true);
  const Variable y = fake_quantize_learnable_per_channel_affine(x, scale, zero, 1, -8, 7);
  const Tensor fixed =
      fake_quantize_per_channel_affine(x.tensor(), scale.tensor(), Tensor::from({0, -1, 7}), 1, -8, 7);
  EXPECT_TRUE(bitwise_equal(y.tensor(), fixed));
  y.backward(Tensor::full({2, 3}, 1));
  EXPECT_EQ(scale.grad().shape(), (Shape{3}));
  EXPECT_EQ(zero.grad().shape(), (Shape{3}));
}

TEST(TorchLearnable, RejectsInvalidArguments) {
  expect_error(
      [] {
        return fake_quantize_learnable_per_tensor_affine(Tensor::zeros({2}, DType::f16), Tensor::zeros({1}),
                                                         Tensor::zeros({1}), 0, 7);
      },
      "the input is f16");
  const Tensor x = ramp({2, 3}), three = Tensor::full({3}, 1), one = Tensor::full({1}, 1);
  expect_error([&] { return fake_quantize_learnable_per_tensor_affine(x, three, one, 0, 7); },
               "one element each");
  expect_error([&] { return fake_quantize_learnable_per_tensor_affine(x, one.to(DType::f64), one, 0, 7); },
               "the scale is f64");
  expect_error(
      [&] { return fake_quantize_learnable_per_tensor_affine(x, one, Tensor::zeros({1}, DType::i32), 0, 7); },
      "the zero point is i32");
  expect_error([&] { return fake_quantize_learnable_per_channel_affine(x, one, one, 1, 0, 7); },
               "use f32 [3]");
  expect_error([&] { return fake_quantize_learnable_per_channel_affine(x, three, three, 5, 0, 7); },
               "axis 5");
}

std::vector<int> code_bytes(const Tensor& codes) {
  const auto* bytes = static_cast<const std::uint8_t*>(codes.raw());
  return {bytes, bytes + codes.numel()};
}

TEST(TorchCast, HandlesValuesAboveTheMaximum) {
  const Tensor x = Tensor::from({464.0f, 464.1f, -kInf, kNan});
  EXPECT_EQ(code_bytes(cast_float8(x, DType::f8_e4m3)), (std::vector<int>{0x7e, 0x7e, 0xfe, 0x7f}));
  EXPECT_EQ(code_bytes(cast_float8(x, DType::f8_e4m3, false)), (std::vector<int>{0x7e, 0x7f, 0xff, 0x7f}));
  const Tensor wide = Tensor::from({61439.0f, 61440.0f, -kInf});
  EXPECT_EQ(code_bytes(cast_float8(wide, DType::f8_e5m2)), (std::vector<int>{0x7b, 0x7b, 0xfb}));
  EXPECT_EQ(code_bytes(cast_float8(wide, DType::f8_e5m2, false)), (std::vector<int>{0x7b, 0x7c, 0xfc}));
}

TEST(TorchCast, CastsPowersOfTwo) {
  const Tensor x = Tensor::from({0.0f, 0x1p-127f, 0x1.1p-127f, 1.49f, 1.5f, -2.0f, kInf});
  EXPECT_EQ(code_bytes(cast_float8(x, DType::f8_e8m0)), (std::vector<int>{0, 0, 1, 127, 128, 128, 255}));
}

TEST(TorchCast, RoundTripsEveryCode) {
  for (const DType dtype : {DType::f8_e4m3, DType::f8_e5m2, DType::f8_e8m0}) {
    Tensor codes = Tensor::empty({256}, dtype);
    for (int i = 0; i < 256; ++i)
      static_cast<std::uint8_t*>(codes.mutable_raw())[i] = static_cast<std::uint8_t>(i);
    const Tensor values = decode_float8(codes), back = cast_float8(values, dtype, false);
    const auto v = values.to_vector<float>();
    for (std::size_t i = 0; i < 256; ++i)
      EXPECT_TRUE(std::isnan(v[i]) || code_bytes(back)[i] == static_cast<int>(i)) << name(dtype) << " " << i;
  }
}

TEST(TorchCast, RejectsInvalidArguments) {
  expect_error([] { return cast_float8(Tensor::zeros({1}, DType::i32), DType::f8_e4m3); },
               "the input is i32");
  expect_error([] { return cast_float8(Tensor::zeros({1}), DType::i8); }, "codes of i8");
  expect_error([] { return decode_float8(Tensor::zeros({1}, DType::u8)); }, "codes of u8");
  expect_error([] { return decode_float8(Tensor::zeros({1}, DType::f8_e4m3), DType::i8); },
               "the output is i8");
  expect_error([] { return cast_float(Tensor::zeros({1}), DType::i8); }, "both must be float types");
}

}  // namespace
}  // namespace fq::torch_ref::torch_ref_test
