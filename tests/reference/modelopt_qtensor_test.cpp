#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/reference/modelopt.h"

namespace fq::modelopt::modelopt_qtensor_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> values(const Tensor& x) { return x.to(DType::f32).to_vector<float>(); }
std::vector<int> bytes(const Tensor& x) {
  const auto* b = static_cast<const std::uint8_t*>(x.raw());
  return {b, b + x.nbytes()};
}

/// Deterministic values of many magnitudes, both signs.
Tensor spread(const Shape& shape) {
  std::vector<float> v(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = std::ldexp(static_cast<float>((i * 2654435761u) % 2001) / 1000 - 1, static_cast<int>(i % 5));
  return Tensor::from(v, shape);
}

template <class F>
void expect_error(F&& f, const char* part) {
  EXPECT_THAT([&] { (void)f(); }, ThrowsMessage<ArgumentError>(HasSubstr(part)));
}

TEST(QTensorBytes, StoresInt8CodesAndScales) {
  const Tensor x = Tensor::from({1.0f, -0.5f, 127.0f, 0.0f, 0.0f, kNaN}, {2, 3});
  const QTensor rows = int8_qtensor(x.slice(0, 1), 0);
  EXPECT_EQ(rows.codes.to_vector<std::int8_t>(), (std::vector<std::int8_t>{1, 0, 127}));
  EXPECT_EQ(rows.scale.rank(), 0);
  EXPECT_EQ(int8_qtensor(x, 0).scale.shape(), (Shape{2, 1}));
  EXPECT_EQ(int8_qtensor(x, {-1, 0}).scale.rank(), 0);  // no axis is left to reduce
  EXPECT_EQ(int8_qtensor(x, 0).codes.to_vector<std::int8_t>()[5], 0);
  EXPECT_TRUE(std::isnan(int8_qtensor(x).scale.item()));
}

TEST(QTensorBytes, KeepsBlockPaddingOfInt8Codes) {
  const Tensor x = spread({3, 5});
  const QTensor q = int8_qtensor(x, {}, {{-1, 4}, {0, 2}});
  EXPECT_EQ(q.codes.shape(), (Shape{4, 8}));
  EXPECT_EQ(q.scale.shape(), (Shape{2, 2}));
  const auto codes = q.codes.to_vector<std::int8_t>();
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const bool padding = i / 8 >= 3 || i % 8 >= 5;
    EXPECT_TRUE(!padding || codes[i] == 0) << i;
  }
  EXPECT_EQ(q.dequantize().shape(), x.shape());
  EXPECT_EQ(fp8_qtensor(x, {}, {{-1, 4}, {0, 2}}).codes.shape(), x.shape());
}

TEST(QTensorBytes, UsesOneScaleForARankZeroTensor) {
  const QTensor q = int8_qtensor(Tensor::scalar(-2));
  EXPECT_EQ(q.codes.to_vector<std::int8_t>(), (std::vector<std::int8_t>{-127}));
  EXPECT_EQ(q.codes.rank() + q.scale.rank() + q.dequantize().rank(), 0);
  EXPECT_EQ(fp8_qtensor(Tensor::scalar(-2)).dequantize().item(), -2);
  EXPECT_EQ(nf4_qtensor(Tensor::scalar(-2), 2, 1).dequantize().item(), -2);
}

TEST(QTensorBytes, HandlesZerosAndNaN) {
  const QTensor q = fp8_qtensor(Tensor::from({0.0f, 0.0f, 1.0f, kNaN}), {}, {{0, 2}});
  EXPECT_EQ(bytes(q.codes)[0] & 0x7f, 0x7f);
  EXPECT_EQ(bytes(q.codes)[3] & 0x7f, 0x7f);
  EXPECT_TRUE(std::isnan(values(q.dequantize())[0]));
}

TEST(QTensorBytes, RoundsEveryStepToSixteenBits) {
  const Tensor x = Tensor::from({0.3f, -1.7f, 2.9f}).to(DType::bf16);
  const auto fl = [](float v) { return static_cast<float>(bfloat16(v)); };
  const auto in = values(x);
  const float scale = fl(fl(2.9f) / 127);
  const QTensor q = int8_qtensor(x);
  EXPECT_EQ(q.scale.item(), static_cast<double>(scale));
  const auto codes = q.codes.to_vector<std::int8_t>();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(codes[i], static_cast<int>(std::clamp(std::nearbyint(fl(in[i] / scale)), -128.0f, 127.0f)));
    EXPECT_EQ(values(q.dequantize())[i], fl(static_cast<float>(codes[i]) * scale));
    EXPECT_EQ(values(q.dequantize(DType::f32))[i], static_cast<float>(codes[i]) * scale);
  }
}

TEST(QTensorInt4, PacksTheFirstCodeInTheHighNibble) {
  const QTensor q = int4_qtensor(Tensor::from({7.0f, -7.0f, 0.4f, -3.6f}, {1, 4}), 4);
  EXPECT_EQ(bytes(q.codes), (std::vector<int>{0xf1, 0x84}));
  EXPECT_EQ(q.codes.shape(), (Shape{1, 2}));
  EXPECT_EQ(q.scale.shape(), (Shape{1, 1}));
  EXPECT_EQ(values(q.dequantize()), (std::vector<float>{7, -7, 0, -4}));
}

TEST(QTensorInt4, OddBlocksShareBytes) {
  const Tensor x = spread({2, 6});
  const QTensor one = int4_qtensor(x, 3);
  EXPECT_EQ(one.codes.shape(), (Shape{2, 3}));
  EXPECT_EQ(one.scale.shape(), (Shape{4, 1}));
  const auto y = one.dequantize().to_vector<float>(), v = x.to_vector<float>(),
             s = one.scale.to_vector<float>();
  for (std::size_t i = 0; i < v.size(); ++i) EXPECT_NEAR(y[i], v[i], 0.5 / s[i / 3]);
}

TEST(QTensorInt4, ReturnsMinusZeroForAZeroBlock) {
  const QTensor q = int4_qtensor(Tensor::zeros({1, 4}), 4);
  EXPECT_EQ(bytes(q.codes), (std::vector<int>{0, 0}));
  EXPECT_TRUE(std::isinf(q.scale.item()));
  for (const float v : values(q.dequantize())) EXPECT_TRUE(v == 0 && std::signbit(v));
}

TEST(QTensorFp4, StoresNvfp4CodesAndScales) {
  std::vector<float> v(16);
  v[0] = 6, v[1] = -0.0f, v[2] = -0.1f, v[3] = 0.75f, v[4] = -5.0f;
  const QTensor q = nvfp4_qtensor(Tensor::from(v, {16}), 1.0);
  EXPECT_EQ(bytes(q.scale), (std::vector<int>{0x38}));  // 6 / (6 * 1)
  EXPECT_EQ(bytes(q.codes), (std::vector<int>{0x07, 0x28, 0x0e, 0, 0, 0, 0, 0}));
  const auto y = values(q.dequantize());
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 5), (std::vector<float>{6, 0, 0, 1, -4}));
  EXPECT_FALSE(std::signbit(y[2]));
  EXPECT_EQ(q.scale2.item(), 1);
  EXPECT_EQ(nvfp4_qtensor(Tensor::from(v, {16})).scale2.item(), static_cast<double>(6.0f / 2688.0f));
}

TEST(QTensorFp4, Nvfp4PadsAndCropsRows) {
  const Tensor x = spread({3, 40});
  const QTensor q = nvfp4_qtensor(x);
  EXPECT_EQ(q.codes.shape(), (Shape{3, 48}));
  EXPECT_EQ(q.codes.dtype(), DType::f4_e2m1);
  EXPECT_EQ(q.scale.shape(), (Shape{3, 3}));
  EXPECT_EQ(q.dequantize().shape(), x.shape());
}

TEST(QTensorFp4, Nvfp4HandlesNaNAndInfinity) {
  const QTensor zeros = nvfp4_qtensor(Tensor::zeros({16}));
  EXPECT_EQ(bytes(zeros.scale)[0] & 0x7f, 0x7f);
  const Tensor x = Tensor::from({kNaN, 1.0f}, {2});
  EXPECT_EQ(bytes(nvfp4_qtensor(x, 1.0, 2).codes), (std::vector<int>{0x77}));  // the scale is NaN too
}

TEST(QTensorFp4, MxRoundsTiesTowardZero) {
  std::vector<float> v{6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 0, -0.0f, -0.75f, 0.76f};
  const QTensor q = mxfp4_qtensor(Tensor::from(v, {12}), 12);
  EXPECT_EQ(bytes(q.scale), (std::vector<int>{127}));
  EXPECT_EQ(bytes(q.codes), (std::vector<int>{0x07, 0x21, 0x43, 0x65, 0x88, 0x29}));
  const auto y = values(q.dequantize());
  EXPECT_EQ(y, (std::vector<float>{6, 0, 0.5f, 1, 1.5f, 2, 3, 4, 0, 0, -0.5f, 1}));
  EXPECT_TRUE(std::signbit(y[8]));
  EXPECT_EQ(bytes(mxfp4_qtensor(Tensor::zeros({2}), 2).scale)[0], 0);
  EXPECT_EQ(bytes(mxfp4_qtensor(Tensor::from({kInf, 1.0f}), 2).scale)[0], 255);
}

TEST(QTensorMx, Fp8ScalesArePowersOfTwo) {
  const Tensor x = Tensor::from({448.0f, 1.0f, -0.5f, 500.0f}, {2, 2});
  const QTensor q = mxfp8_qtensor(x);
  EXPECT_EQ(bytes(q.scale), (std::vector<int>{127, 128}));
  EXPECT_EQ(values(q.dequantize()), (std::vector<float>{448, 1, -0.5f, 512}));
  EXPECT_EQ(bytes(mxfp8_qtensor(Tensor::zeros({3})).scale), (std::vector<int>{0}));
  EXPECT_EQ(bytes(mxfp8_qtensor(Tensor::from({kInf})).scale), (std::vector<int>{254}));
  EXPECT_EQ(mxfp8_qtensor(spread({2, 70})).scale.shape(), (Shape{2, 3}));
  EXPECT_EQ(mxfp8_qtensor(Tensor::zeros({3, 0})).dequantize().shape(), (Shape{3, 0}));
}

TEST(QTensorNf4, UsesItsTableAndDoubleQuantizedScales) {
  const Tensor x = Tensor::from({2.0f, -2.0f, 0.1608f, 0.0f, 1.0f, 0.73f, kNaN, 0.0f}, {8});
  const QTensor q = nf4_qtensor(x, 2, 2);
  EXPECT_EQ(bytes(q.codes), (std::vector<int>{0xf0, 0xf7, 0xfe, 0x00}));
  EXPECT_EQ(q.scale_codes.shape(), (Shape{2, 2}));
  EXPECT_EQ(q.double_scale.shape(), (Shape{2}));
  const Tensor finite = Tensor::from({2.0f, -2.0f, 0.5f, 0.0f}, {2, 2});
  const auto y = values(nf4_qtensor(finite, 2, 2).dequantize());
  EXPECT_NEAR(y[0], 2, 1e-6);
  EXPECT_NEAR(y[1], -2, 1e-6);
  EXPECT_NEAR(y[2], 0.5, 1e-6);
  EXPECT_EQ(nf4_qtensor(spread({7}), 2, 3).scale.shape(), (Shape{6}));
}

TEST(QTensorMx, BlocksOfOneElementHaveTheirOwnScales) {
  const Tensor x = Tensor::from({1.0f, -8.0f, 0.0f, 0x1p20f}, {4, 1});
  EXPECT_TRUE(bitwise_equal(mxfp8_qtensor(x).dequantize(), x));
  EXPECT_EQ(values(mxfp4_qtensor(x.reshape({4}), 1).dequantize()), values(x));
}

/// Packed and unpacked values differ by at most half of the widest step of their block.
TEST(QTensor, RoundTripsWithinItsStep) {
  const Tensor x = spread({4, 64});
  const auto in = values(x);
  const std::vector<std::pair<QTensor, float>> packed{
      {int8_qtensor(x, 0), 0.5f / 127}, {fp8_qtensor(x, 0), 0.04f},    {int4_qtensor(x, 64), 0.5f / 7},
      {nvfp4_qtensor(x), 0.18f},        {mxfp4_qtensor(x, 64), 0.34f}, {mxfp8_qtensor(x), 0.07f},
      {nf4_qtensor(x, 64, 4), 0.17f}};
  for (const auto& [q, part] : packed) {
    const auto y = values(q.dequantize());
    for (std::size_t row = 0; row < 4; ++row) {
      float largest = 0;
      for (std::size_t i = 64 * row; i < 64 * (row + 1); ++i) largest = std::max(largest, std::fabs(in[i]));
      for (std::size_t i = 64 * row; i < 64 * (row + 1); ++i)
        EXPECT_LE(std::fabs(y[i] - in[i]), part * largest * 1.001f)
            << static_cast<int>(q.format) << " element " << i << " of " << in[i];
    }
  }
}

std::vector<QTensor> all_packed(const Tensor& x) {
  return {int8_qtensor(x, 1),  fp8_qtensor(x, {}, {{1, 3}}), int4_qtensor(x, 8),
          nvfp4_qtensor(x),    mxfp4_qtensor(x, 24),         mxfp8_qtensor(x),
          nf4_qtensor(x, 8, 4)};
}

TEST(QTensor, IsInvariantToLayoutAndRunsOnMeta) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const Tensor x = spread({2, 6, 2, 2}).to(dtype);
    const auto rows = all_packed(x), last = all_packed(x.to(Layout::channels_last));
    const auto meta = all_packed(Tensor::empty(x.shape(), dtype, Device::meta()));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(bytes(rows[i].codes), bytes(last[i].codes)) << i;
      EXPECT_TRUE(bitwise_equal(rows[i].dequantize(), last[i].dequantize())) << i;
      EXPECT_EQ(rows[i].dequantize().dtype(), dtype);
      EXPECT_EQ(rows[i].dequantize(DType::f32).dtype(), DType::f32);
      const auto same = [](const Tensor& a, const Tensor& b) {
        EXPECT_EQ(a.shape(), b.shape());
        EXPECT_EQ(a.dtype(), b.dtype());
        EXPECT_TRUE(!a.defined() || b.device().is_meta());
      };
      same(rows[i].codes, meta[i].codes);
      same(rows[i].scale, meta[i].scale);
      same(rows[i].scale2, meta[i].scale2);
      same(rows[i].scale_codes, meta[i].scale_codes);
      same(rows[i].double_scale, meta[i].double_scale);
      same(rows[i].scale_zero, meta[i].scale_zero);
      same(rows[i].dequantize(), meta[i].dequantize());
    }
  }
}

TEST(QTensor, RejectsInvalidInputs) {
  const Tensor x = spread({2, 4}), odd = spread({2, 3});
  for (const Tensor& bad : {x.to(DType::f64), x.to(DType::i8), Tensor()}) {
    expect_error([&] { return int8_qtensor(bad); }, "f32, f16 or bf16");
    expect_error([&] { return fp8_qtensor(bad); }, "f32, f16 or bf16");
    expect_error([&] { return int4_qtensor(bad, 2); }, "f32, f16 or bf16");
    expect_error([&] { return nvfp4_qtensor(bad); }, "f32, f16 or bf16");
    expect_error([&] { return mxfp4_qtensor(bad, 2); }, "f32, f16 or bf16");
    expect_error([&] { return mxfp8_qtensor(bad); }, "f32, f16 or bf16");
    expect_error([&] { return nf4_qtensor(bad, 2, 2); }, "f32, f16 or bf16");
  }
  const Tensor empty = Tensor::zeros({0, 4}), scalar = Tensor::scalar(1);
  expect_error([&] { return int8_qtensor(empty); }, "no elements");
  expect_error([&] { return fp8_qtensor(empty, 0); }, "no elements");
  expect_error([&] { return int4_qtensor(empty, 2); }, "no elements");
  expect_error([&] { return nvfp4_qtensor(empty); }, "no elements");
  expect_error([&] { return mxfp4_qtensor(empty); }, "no elements");
  expect_error([&] { return nf4_qtensor(empty, 2, 2); }, "no elements");
  EXPECT_EQ(int8_qtensor(empty, {}, {{-1, 2}}).scale.shape(), (Shape{0, 2}));
  expect_error([&] { return int4_qtensor(scalar, 2); }, "must be even");
  expect_error([&] { return nvfp4_qtensor(scalar); }, "no axes");
  expect_error([&] { return mxfp8_qtensor(scalar); }, "no axes");
  expect_error([&] { return mxfp4_qtensor(odd, 2); }, "must be even");
  expect_error([&] { return int4_qtensor(odd, 2); }, "must be even");
  expect_error([&] { return int8_qtensor(x).dequantize(DType::i8); }, "use f32, f16 or bf16");
}

TEST(QTensor, RejectsInvalidBlocks) {
  const Tensor x = spread({2, 4});
  expect_error([&] { return int8_qtensor(x, 0, {{-1, 2}}); }, "both given");
  expect_error([&] { return int8_qtensor(x, 2); }, "axis 2");
  expect_error([&] { return int8_qtensor(x, {0, -2}); }, "named twice");
  expect_error([&] { return fp8_qtensor(x, {}, {{-1, 2}, {1, 2}}); }, "two block lengths");
  expect_error([&] { return fp8_qtensor(x, {}, {{2, 2}}); }, "axis 2");
  expect_error([&] { return fp8_qtensor(x, {}, {{1, 0}}); }, "from 1 to 2^24");
  expect_error([&] { return fp8_qtensor(x, {}, {{1, -1}}); }, "from 1 to 2^24");
  expect_error([&] { return int4_qtensor(x, 3); }, "8 elements padded to 9");
  expect_error([&] { return int4_qtensor(x, 0); }, "from 1 to 2^24");
  expect_error([&] { return int4_qtensor(spread({3, 16}), 128); }, "for each row of");
  EXPECT_EQ(int4_qtensor(spread({2, 2, 6}), 128).codes.shape(), (Shape{2, 2, 16}));
  expect_error([&] { return nvfp4_qtensor(x, {}, 3); }, "use an even number");
  expect_error([&] { return nvfp4_qtensor(x, {1.0, 2.0}); }, "use one");
  expect_error([&] { return mxfp4_qtensor(x, 3); }, "choose a divisor");
  expect_error([&] { return mxfp4_qtensor(x, 0); }, "from 1 to 2^24");
  expect_error([&] { return nf4_qtensor(x, 3, 2); }, "use an even block size");
  expect_error([&] { return nf4_qtensor(x, 2, 0); }, "from 1 to 2^24");
  expect_error([&] { return nf4_qtensor(x, std::int64_t{1} << 40, 2); }, "2^24");
}

}  // namespace
}  // namespace fq::modelopt::modelopt_qtensor_test
