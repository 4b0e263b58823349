#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/reference/ggml.h"
#include "fakequant/reference/onnx.h"
#include "fakequant/reference/xnnpack.h"

namespace fq {
namespace {

/// Numbers between -1 and 1 that differ.
Tensor numbers(const Shape& shape) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < numel(shape); ++i) out.push_back(static_cast<float>(i * 37 % 101 - 50) / 50);
  return Tensor::from(out, shape);
}
Tensor codes(const Shape& shape, int lower, int upper) {
  std::vector<std::int8_t> out;
  for (std::int64_t i = 0; i < numel(shape); ++i)
    out.push_back(static_cast<std::int8_t>(lower + i * 7 % (upper - lower + 1)));
  return Tensor::from(out, shape);
}

TEST(Ggml, UnpacksWhatItPacked) {
  for (const bool narrow : {true, false}) {
    const auto blocks =
        narrow ? ggml::quantize_q4_0(numbers({3, 96})) : ggml::quantize_q8_0(numbers({3, 96}));
    const Tensor bytes = narrow ? ggml::pack_q4_0(blocks) : ggml::pack_q8_0(blocks);
    EXPECT_EQ(bytes.shape(), (Shape{3, narrow ? 54 : 102}));
    const auto back = narrow ? ggml::unpack_q4_0(bytes) : ggml::unpack_q8_0(bytes);
    EXPECT_TRUE(bitwise_equal(back.codes, blocks.codes));
    EXPECT_TRUE(bitwise_equal(back.scale, blocks.scale));
  }
}

TEST(Ggml, MapsTheLargestMagnitudeToMinusEight) {
  std::vector<float> x(32, 0.25f);
  x[3] = 4.0f;
  x[9] = -4.0f;  // as large, but later
  const auto q = ggml::quantize_q4_0(Tensor::from(x, {1, 32}));
  EXPECT_EQ(q.scale.to(DType::f32).item(), -0.5);
  EXPECT_EQ(q.codes.to_vector<std::int8_t>()[3], -8);
  EXPECT_EQ(q.codes.to_vector<std::int8_t>()[9], 7);
}

TEST(Ggml, RoundsTiesByPosition) {
  std::vector<float> x(32, 0.5f);
  x[0] = 127.0f;
  x[1] = -0.5f;
  const Tensor t = Tensor::from(x, {1, 32});
  EXPECT_EQ(ggml::quantize_q8_0(t).codes.to_vector<std::int8_t>()[2], 1);
  EXPECT_EQ(ggml::quantize_q8_0(t).codes.to_vector<std::int8_t>()[1], -1);
  EXPECT_EQ(ggml::quantize_q8_0_activation(t).codes.to_vector<std::int8_t>()[2], 0);
}

TEST(Ggml, BothSummationOrdersGiveOneProduct) {
  const auto w = ggml::quantize_q4_0(numbers({8, 320}));
  const Tensor x = numbers({5, 320});
  const auto plain = ggml::matmul_q4_0_q8_0(x, w).to_vector<float>();
  const auto repack = ggml::matmul_q4_0_q8_0(x, w, ggml::Buffer::repack).to_vector<float>();
  EXPECT_NE(plain, repack);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(plain[i], repack[i], 1e-4);  // of some 300 terms
}

TEST(Ggml, RejectsInputUnsupportedByTheEngine) {
  EXPECT_THROW((void)ggml::quantize_q4_0(numbers({2, 33})), ArgumentError);
  EXPECT_THROW((void)ggml::quantize_q8_0(numbers({2, 0})), ArgumentError);
  EXPECT_THROW((void)ggml::quantize_q8_0(numbers({64})), ArgumentError);
  EXPECT_THROW((void)ggml::quantize_q8_0(numbers({2, 32}).to(DType::f16)), ArgumentError);
  EXPECT_THROW((void)ggml::pack_q4_0({codes({1, 32}, -9, 7), Tensor::zeros({1, 1}, DType::f16)}),
               ArgumentError);
  EXPECT_THROW((void)ggml::unpack_q4_0(Tensor::zeros({1, 35}, DType::u8)), ArgumentError);
  const auto w = ggml::quantize_q4_0(numbers({7, 32}));
  EXPECT_THROW((void)ggml::matmul_q4_0_q8_0(numbers({1, 64}), w), ArgumentError);
  EXPECT_THROW((void)ggml::matmul_q4_0_q8_0(numbers({1, 32}), w, ggml::Buffer::repack), ArgumentError);
  EXPECT_THROW((void)ggml::buffer("amx"), ArgumentError);
}

TEST(Ggml, HandlesNoRowsAndMetaTensors) {
  EXPECT_EQ(ggml::quantize_q4_0(numbers({0, 32})).scale.shape(), (Shape{0, 1}));
  const auto w = ggml::quantize_q8_0(Tensor::empty({4, 64}, DType::f32, Device::meta()));
  EXPECT_EQ(ggml::matmul_q8_0(Tensor::empty({2, 64}, DType::f32, Device::meta()), w).shape(), (Shape{2, 4}));
  EXPECT_EQ(ggml::pack_q8_0(w).shape(), (Shape{4, 68}));
}

TEST(Xnnpack, RowsAreIndependent) {
  const Tensor w = codes({5, 64}, -8, 7), scale = Tensor::full({5, 2}, 0.01), x = numbers({3, 64});
  const Tensor all = xnnpack::linear_qd8_qb4w(x, w, scale, 32);
  for (std::int64_t m = 0; m < 3; ++m)
    EXPECT_TRUE(bitwise_equal(all.slice(m, m + 1).clone(),
                              xnnpack::linear_qd8_qb4w(x.slice(m, m + 1).clone(), w, scale, 32)));
}

TEST(Xnnpack, ReturnsTheBiasForZeros) {
  const Tensor bias = numbers({5}), x = Tensor::zeros({2, 33}), scale = Tensor::full({5}, 0.5);
  const auto y = xnnpack::linear_qd8_qc8w(x, codes({5, 33}, -128, 127), scale, bias).to_vector<float>();
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias.to_vector<float>()[i % 5]);
}

TEST(Xnnpack, RejectsInputUnsupportedByTheEngine) {
  const Tensor x = numbers({2, 64}), w = codes({3, 64}, -8, 7), scale = Tensor::full({3}, 0.1);
  EXPECT_THROW((void)xnnpack::linear_qd8_qc4w(x, codes({3, 64}, -9, 7), scale), ArgumentError);
  EXPECT_THROW((void)xnnpack::linear_qd8_qc4w(numbers({2, 40}), codes({3, 40}, -8, 7), scale), ArgumentError);
  EXPECT_THROW((void)xnnpack::linear_qd8_qb4w(x, w, Tensor::full({3, 4}, 0.1), 16), ArgumentError);
  EXPECT_THROW((void)xnnpack::linear_qd8_qc8w(x, w, scale, numbers({2})), ArgumentError);
  EXPECT_THROW((void)xnnpack::linear_qd8_qc8w(x, w, scale.to(DType::f16)), ArgumentError);
  EXPECT_THROW((void)xnnpack::linear_qs8(x, {0, 0}, w, scale, {1, 0}), ArgumentError);
  EXPECT_THROW((void)xnnpack::linear_qs8(x, {1, 128}, w, scale, {1, 0}), ArgumentError);
}

TEST(OnnxDynamic, UsesOneRangeForAllRows) {
  const auto q = onnx::dynamic_quantize_linear(Tensor::from<float>({-1, 0, 2, 4}, {2, 2}));
  EXPECT_EQ(static_cast<float>(q.scale.item()), 5.0f / 255.0f);
  EXPECT_EQ(q.zero_point.item(), 51);
  EXPECT_EQ(q.codes.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 51, 153, 255}));
  EXPECT_EQ(onnx::dynamic_quantize_linear(Tensor::zeros({2})).scale.item(), 1);
}

TEST(OnnxDynamic, AttentionOverOnePositionReturnsItsValue) {
  const Tensor one = Tensor::full({1}, 0.25), v = Tensor::from<float>({1, -2, 3, 40}, {1, 1, 4});
  const auto got = onnx::gqa_int8_kv(numbers({1, 1, 8}), v, v, one, one, {4, 2});
  EXPECT_EQ(got.v_codes.to_vector<std::int8_t>(), (std::vector<std::int8_t>{4, -8, 12, 127}));
  EXPECT_EQ(got.y.to_vector<float>(), (std::vector<float>{1, -2, 1, -2, 3, 31.75f, 3, 31.75f}));
}

TEST(OnnxDynamic, RejectsInputUnsupportedByTheEngine) {
  const Tensor x = numbers({2, 32}), scale = Tensor::full({3, 1}, 0.1);
  EXPECT_THROW((void)onnx::matmulnbits_level4(x, codes({3, 32}, -8, 7), scale, 24), ArgumentError);
  EXPECT_THROW((void)onnx::matmulnbits_level4(x, codes({3, 32}, -8, 8), scale, 32), ArgumentError);
  EXPECT_THROW((void)onnx::dynamic_quantize_matmul(x, codes({3, 32}, -8, 7), scale), ArgumentError);
  EXPECT_THROW((void)onnx::gqa_int8_kv(numbers({1, 1, 9}), x, x, scale, scale, {4, 2}), ArgumentError);
}

}  // namespace
}  // namespace fq
