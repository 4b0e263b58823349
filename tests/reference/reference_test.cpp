#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/reference/modelopt.h"
#include "fakequant/reference/torchao.h"

namespace fq::reference_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> values(const Tensor& x) { return x.to(DType::f32).to_vector<float>(); }

TEST(FakeTensorQuant, FollowsTheFormula) {
  const Tensor x = Tensor::from({-3.0f, -1.0f, -0.3f, 0.24f, 0.5f, 1.5f, 9.0f});
  const auto y = values(fake_tensor_quant(x, 1.5, {}, 4, false, true));
  const float s = 7.0f / 1.5f;
  for (std::size_t i = 0; i < y.size(); ++i)
    EXPECT_EQ(y[i], std::clamp(std::nearbyint(values(x)[i] * s), -7.0f, 7.0f) / s);
  EXPECT_EQ(values(fake_tensor_quant(x, 1.5, {}, 4, false, false))[0], -8.0f / s);
}

TEST(FakeTensorQuant, HandlesNaNAndInfinity) {
  const auto y = values(fake_tensor_quant(Tensor::from({kInf, -kInf, kNaN, -0.0f, -0.001f}), 127.0));
  EXPECT_EQ(y[0], 127.0f);
  EXPECT_EQ(y[1], -127.0f);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_TRUE(y[3] == 0 && std::signbit(y[3]));
  EXPECT_TRUE(y[4] == 0 && std::signbit(y[4]));
  const Tensor rows = Tensor::from({1.0f, 0.0f, kInf, 1.0f, 0.0f, kInf}, {2, 3});
  const auto dead = values(fake_tensor_quant(rows, Tensor::from({0x1p-24f, 1.0f}, {2, 1})));
  EXPECT_EQ(dead[0], 0.0f);
  EXPECT_TRUE(std::isnan(dead[2]));
  EXPECT_EQ(dead[5], 1.0f);
  for (const float v : values(fake_tensor_quant(rows, static_cast<double>(kInf)))) EXPECT_TRUE(std::isnan(v));
  const auto unguarded = values(fake_tensor_quant(rows, Tensor::from({0.0f, kNaN}, {2, 1})));
  EXPECT_EQ(unguarded[0], 0.0f);
  EXPECT_TRUE(std::isnan(unguarded[1]));
  const auto zero = values(fake_tensor_quant(Tensor::from({-0.0f}), 1.0, {}, 8, true));
  EXPECT_TRUE(std::signbit(zero[0]));
}

TEST(FakeTensorQuant, RejectsInvalidArguments) {
  const Tensor x = Tensor::from({1.0f, -2.0f, 3.0f, 4.0f}, {2, 2});
  const auto message = [](auto f) { return [f] { (void)f(); }; };
  EXPECT_THAT(message([&] { return fake_tensor_quant(x, -1.0); }),
              ThrowsMessage<ArgumentError>(HasSubstr("negative")));
  EXPECT_THAT(message([&] { return fake_tensor_quant(x, 1.0, {}, 8, true); }),
              ThrowsMessage<ArgumentError>(HasSubstr("use a signed one")));
  EXPECT_THAT(message([&] {
                return fake_tensor_quant(x, {1.0, 2.0, 3.0});
              }),
              ThrowsMessage<ArgumentError>(HasSubstr("[2, 2] and [3] do not broadcast")));
  EXPECT_THAT(message([&] { return fake_tensor_quant(x, 1.0, {}, 17); }),
              ThrowsMessage<ArgumentError>(HasSubstr("1 to 16")));
  EXPECT_THAT(message([&] { return fake_tensor_quant(x, Amax()); }),
              ThrowsMessage<ArgumentError>(HasSubstr("amax is missing")));
  EXPECT_THAT(message([&] { return scaled_e4m3(x, 1.0, {}, 5, 2); }),
              ThrowsMessage<ArgumentError>(HasSubstr("use (4, 3)")));
  EXPECT_THROW((void)fake_tensor_quant(x.to(DType::i8), 1.0), ArgumentError);
  EXPECT_NO_THROW((void)fake_tensor_quant(Tensor::from({kNaN, -1.0f}), 1.0, {}, 8, true));
}

TEST(FakeTensorQuant, GradientIsClipped) {
  const Tensor x = Tensor::from({-2.0f, -1.0f, 0.5f, 1.0f, 1.5f, kNaN});
  const Tensor dy = Tensor::from({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f});
  const Variable clipped(x, true), passed(x, true), cast(x, true);
  fake_tensor_quant(clipped, 1.0).backward(dy);
  fake_tensor_quant(passed, 1.0, {}, 8, false, true, true).backward(dy);
  modelopt::int_cast_ste(cast, 2, false, false).backward(dy);
  EXPECT_EQ(values(clipped.grad()), (std::vector<float>{0, 2, 3, 4, 0, 0}));
  EXPECT_EQ(values(passed.grad()), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values(cast.grad()), (std::vector<float>{1, 2, 3, 4, 0, 0}));
  const Variable free(x, true), bounded(x, true);
  scaled_e4m3(free).backward(dy);
  scaled_e4m3(bounded, 1.0).backward(dy);
  EXPECT_EQ(values(free.grad()), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values(bounded.grad()), (std::vector<float>{0, 2, 3, 4, 0, 0}));
}

TEST(FakeTensorQuant, AcceptsTheInputAsItsRange) {
  const Tensor ranges = Tensor::from({1.0f, 2.0f}, {2, 1}), row = Tensor::from({1.0f, -2.0f, 0.5f});
  const Tensor twice = Tensor::from({1.0f, -2.0f, 0.5f, 1.0f, -2.0f, 0.5f}, {2, 3});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    const Variable x(row.to(dtype), true), e4m3(row.to(dtype), true);
    const Variable y = fake_tensor_quant(x, ranges), z = scaled_e4m3(e4m3, ranges);
    EXPECT_TRUE(bitwise_equal(y.tensor(), fake_tensor_quant(twice.to(dtype), ranges)));
    EXPECT_TRUE(bitwise_equal(z.tensor(), scaled_e4m3(twice.to(dtype), ranges)));
    y.backward(Tensor::full({2, 3}, 1.0, dtype));
    z.backward(Tensor::full({2, 3}, 1.0, dtype));
    for (const Variable& each : {x, e4m3})
      EXPECT_EQ(values(each.grad().to(DType::f32)), (std::vector<float>{2, 1, 2}));
  }
  EXPECT_EQ(fake_tensor_quant(Variable(Tensor::empty({3}, DType::f16, Device::meta())), ranges).shape(),
            (Shape{2, 3}));
}

TEST(FakeTensorQuant, SupportsOneBit) {
  const Tensor x = Tensor::from({1.0f, 0.75f, 0.25f, 0.0f});
  EXPECT_EQ(values(fake_tensor_quant(x, 1.0, {}, 1, true)), (std::vector<float>{1, 1, 0, 0}));
  for (const float v : values(fake_tensor_quant(x, 1.0, {}, 1))) EXPECT_TRUE(std::isnan(v));  // 0 / 0
  EXPECT_EQ(values(modelopt::int_cast_ste(Tensor::from({-3.0f, 0.0f, 2.0f}), 1, false, false)),
            (std::vector<float>{-1, 0, 0}));
}

/// Bounds that a type has no number for are its nearest ones, in codes and in the mask.
TEST(IntCast, BoundsHaveTheInputType) {
  const Variable x(Tensor::from({510.0f, 512.0f, 516.0f, -512.0f, -516.0f}).to(DType::bf16), true);
  const Variable y = modelopt::int_cast_ste(x, 10);  // 511 is 512 in bf16
  EXPECT_EQ(values(y.tensor().to(DType::f32)), (std::vector<float>{510, 512, 512, -512, -512}));
  y.backward(Tensor::full({5}, 1.0, DType::bf16));
  EXPECT_EQ(values(x.grad().to(DType::f32)), (std::vector<float>{1, 1, 0, 1, 0}));
  EXPECT_THAT([] { (void)modelopt::int_cast_ste(Tensor::zeros({1}, DType::f16), 16, true); },
              ThrowsMessage<ArgumentError>(HasSubstr("65535 is no number of f16")));
  const Variable wide(Tensor::from({127.0 + 0x1p-40, 0.5 + 0x1p-40}), true);
  const Variable rounded = modelopt::int_cast_ste(wide, 8);
  EXPECT_EQ(rounded.tensor().to_vector<double>(), (std::vector<double>{127, 1}));
  rounded.backward(Tensor::full({2}, 1.0, DType::f64));
  EXPECT_EQ(wide.grad().to_vector<double>(), (std::vector<double>{0, 1}));
}

TEST(FakeTensorQuant, BiasShiftsTheCentre) {
  const Variable x(Tensor::from({4.0f, 6.5f}), true);
  const Variable y = fake_tensor_quant(x, 1.0, Tensor::from({5.0f}));
  EXPECT_EQ(values(y.tensor()), (std::vector<float>{4, 6}));
  y.backward(Tensor::from({1.0f, 1.0f}));
  EXPECT_EQ(values(x.grad()), (std::vector<float>{1, 0}));
}

TEST(FakeTensorQuant, KeepsTypeLayoutAndRunsOnMeta) {
  const Tensor x =
      Tensor::from(std::vector<float>(2 * 3 * 2 * 2, 0.3f), {2, 3, 2, 2}).to(Layout::channels_last);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    const Tensor y = fake_tensor_quant(x.to(dtype), Tensor::from({1.0f, 2.0f, 3.0f}, {3, 1, 1}));
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.layout(), Layout::channels_last);
  }
  const Variable meta(Tensor::empty({2, 3}, DType::bf16, Device::meta()), true);
  for (const Variable& y :
       {fake_tensor_quant(meta, 1.0), scaled_e4m3(meta, 1.0), modelopt::int_cast_ste(meta, 8)}) {
    EXPECT_EQ(y.shape(), (Shape{2, 3}));
    EXPECT_TRUE(y.device().is_meta());
    EXPECT_EQ(y.tensor().dtype(), DType::bf16);
  }
  EXPECT_EQ(fake_tensor_quant(Tensor::zeros({0, 3}), 1.0).shape(), (Shape{0, 3}));
}

TEST(FakeTensorQuant, RoundsSixteenBitBoundsForRankZeroOnly) {
  const Tensor x = Tensor::from({1.0f}).to(DType::bf16);  // amax 0.999 rounds to 1 in bf16
  const Variable scalar(x, true), list(x, true);
  fake_tensor_quant(scalar, 0.999).backward(x);
  fake_tensor_quant(list, {0.999}).backward(x);
  EXPECT_EQ(values(scalar.grad())[0], 1.0f);
  EXPECT_EQ(values(list.grad())[0], 0.0f);
}

TEST(ScaledE4m3, ScalesByTheReciprocal) {
  const float s = 448.0f * (1.0f / 3.0f);
  EXPECT_EQ(values(scaled_e4m3(Tensor::from({1.0f}), 3.0))[0], 144.0f * (1.0f / s));
  EXPECT_EQ(values(scaled_e4m3(Tensor::from({1.06f, 500.0f, -kInf}))),
            (std::vector<float>{1.0f, 448.0f, -448.0f}));
  EXPECT_EQ(values(scaled_e4m3(Tensor::from({0.5f}), 0.0))[0], 224.0f * (1.0f / 448.0f));
}

TEST(Torchao, SupportsEveryGranularity) {
  const Shape x{4, 6};
  EXPECT_EQ(torchao::get_block_size(x, torchao::PerTensor{}), (Shape{4, 6}));
  EXPECT_EQ(torchao::get_block_size(x, torchao::PerAxis{-1}), (Shape{4, 1}));
  EXPECT_EQ(torchao::get_block_size(x, torchao::PerGroup{3}), (Shape{1, 3}));
  EXPECT_EQ(torchao::get_block_size(x, torchao::PerRow{}), (Shape{1, 6}));
  EXPECT_EQ(torchao::get_block_size(x, torchao::PerToken{}), (Shape{1, 6}));
  EXPECT_EQ(torchao::scale_shape(x, torchao::get_block_size(x, torchao::PerBlock{{2, 3}})), (Shape{2, 2}));
  EXPECT_THROW((void)torchao::get_block_size(x, torchao::PerGroup{4}), ArgumentError);
  EXPECT_THROW((void)torchao::get_block_size(x, torchao::PerAxis{2}), ArgumentError);
  EXPECT_THROW((void)torchao::get_block_size(x, torchao::PerBlock{{2}}), ArgumentError);
}

}  // namespace
}  // namespace fq::reference_test
