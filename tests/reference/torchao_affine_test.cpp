#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/reference/torch_ref.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao::torchao_affine_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const IntegerType kInt8{8, false}, kUint4{4, true};
constexpr auto kInteger = ZeroPointDomain::integer, kFloating = ZeroPointDomain::floating,
               kNone = ZeroPointDomain::none;

template <class F>
void expect_error(F f, const char* part) {
  EXPECT_THAT([&] { (void)f(); }, ThrowsMessage<ArgumentError>(HasSubstr(part)));
}

Tensor ramp(Shape shape, float from = -4.0f, float step = 0.37f) {
  std::vector<float> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = step * static_cast<float>(i) + from;
  return Tensor::from(values, std::move(shape));
}

TEST(TorchaoTypes, HaveNamesAndBounds) {
  EXPECT_EQ(IntegerType::named("uint4"), kUint4);
  EXPECT_EQ(IntegerType::named("int32").lower(), -2147483648LL);
  EXPECT_EQ(IntegerType::named("int1").upper(), 0);
  EXPECT_EQ(IntegerType::named("uint7").name(), "uint7");
  for (const char* name : {"int64", "uint16", "int9", "int0", "float", "uint", "int8x"})
    expect_error([name] { return IntegerType::named(name); }, "is unsupported: use int1");
  expect_error([] { return mapping_type("symmetric"); }, "ASYMMETRIC");
  expect_error([] { return zero_point_domain("int"); }, "INT, FLOAT or NONE");
}

TEST(TorchaoAffine, RoundTripMatchesFakeQuantization) {
  const Tensor x = ramp({4, 6});
  const Tensor scale = ramp({2, 2}, 0.1f, 0.05f), integer = Tensor::from({1, 7, 0, 15}, {2, 2}),
               floating = ramp({2, 2}, -0.3f, 0.4f);
  for (const ZeroPointDomain domain : {kInteger, kFloating, kNone}) {
    const Tensor zero = domain == kInteger ? integer : domain == kFloating ? floating : Tensor();
    const Tensor codes = quantize_affine(x, {2, 3}, scale, zero, kUint4, {}, domain);
    EXPECT_EQ(codes.dtype(), DType::u8);
    const Tensor y = dequantize_affine(codes, {2, 3}, scale, zero, kUint4, {}, domain);
    const Tensor fake = fake_quantize_affine(x, {2, 3}, scale, zero, kUint4, {}, domain);
    for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(y.to_vector<float>()[i], fake.to_vector<float>()[i]);
  }
}

TEST(TorchaoAffine, OneBlockMatchesTorchFakeQuantization) {
  const Tensor x = ramp({5, 7});
  const Tensor y = fake_quantize_affine(x, x.shape(), Tensor::scalar(0.3), Tensor::from({5}), kUint4);
  EXPECT_TRUE(bitwise_equal(y, torch_ref::fake_quantize_per_tensor_affine(x, 0.3, 5, 0, 15)));
}

TEST(TorchaoAffine, EveryStepIsRoundedToSixteenBits) {
  const Tensor x = Tensor::from({1.0f}).to(DType::bf16), scale = Tensor::from({0.3f});
  const auto value = [&](DType type) {
    return fake_quantize_affine(x, {1}, scale.to(type), Tensor::zeros({1}, DType::i32), kInt8).item();
  };
  EXPECT_EQ(value(DType::bf16), static_cast<float>(bfloat16(3 * static_cast<float>(bfloat16(0.3f)))));
  EXPECT_EQ(value(DType::f32), static_cast<float>(bfloat16(3 * 0.3f)));
}

TEST(TorchaoAffine, ZerosKeepTheirSignWithoutAZeroPoint) {
  const Tensor x = Tensor::from({-0.1f}), scale = Tensor::from({1.0f});
  EXPECT_TRUE(std::signbit(fake_quantize_affine(x, {1}, scale, {}, kInt8, {}, kNone).item()));
  EXPECT_FALSE(std::signbit(
      fake_quantize_affine(x, {1}, scale, Tensor::zeros({1}, DType::i32), kInt8, {}, kInteger).item()));
}

TEST(TorchaoAffine, MapsNaNToCodeZeroOutsideTheMask) {
  const Tensor x = Tensor::from({std::numeric_limits<float>::quiet_NaN(), 500.0f});
  const Tensor scale = Tensor::from({1.0f}), zero = Tensor::from({3});
  EXPECT_EQ(quantize_affine(x, {2}, scale, zero, kInt8).to_vector<std::int8_t>(),
            (std::vector<std::int8_t>{0, 127}));
  const auto [y, mask] = fake_quantize_affine_cachemask(x, {2}, scale, zero, kInt8);
  EXPECT_TRUE(std::isnan(y.to_vector<float>()[0]));
  EXPECT_EQ(static_cast<const std::uint8_t*>(mask.raw())[0], 0b10);
}

TEST(TorchaoAffine, GradientPassesStrictlyInside) {
  const Variable x(Tensor::from({-128.4f, -127.4f, 0.0f, 126.0f, 127.0f}), true);
  const Variable y =
      fake_quantize_affine(x, {5}, Tensor::from({1.0f}), Tensor::zeros({1}, DType::i32), kInt8);
  y.backward(Tensor::full({5}, 3));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 3, 3, 3, 0}));
}

TEST(TorchaoAffine, GradientHasTwoRoundings) {
  const Variable x(Tensor::from({0.1f}), true);
  fake_quantize_affine(x, {1}, Tensor::from({0.3f}), Tensor::zeros({1}, DType::i32), kInt8)
      .backward(Tensor::from({0.7f}));
  EXPECT_EQ(x.grad().to_vector<float>()[0], (0.7f * 0.3f) * (1.0f / 0.3f));
}

TEST(TorchaoAffine, GradientOfTheScale) {
  const Variable x(Tensor::from({0.9f, 2.0f, 100.0f}), true), scale(Tensor::from({0.5f}), true);
  fake_quantize_affine(x, {3}, scale, Tensor::from({1}), kInt8, {-8, 7})
      .backward(Tensor::from({1.0f, 2.0f, 4.0f}));
  // Codes 3, 5 and, clamped, 7: dy * (q - z) of all, less dy * x / s of the two within.
  EXPECT_FLOAT_EQ(static_cast<float>(scale.grad().item()), 1 * 2 + 2 * 4 + 4 * 6 - (1 * 1.8f + 2 * 4.0f));
}

TEST(TorchaoAffine, HandlesLayoutsEmptyAndMetaTensors) {
  const Tensor x = ramp({2, 4, 2, 3}), scale = Tensor::full({4}, 0.2), zero = Tensor::zeros({4}, DType::i32);
  const Shape block{2, 1, 2, 3};
  const Tensor y = fake_quantize_affine(x.to(Layout::channels_last), block, scale, zero, kInt8);
  EXPECT_EQ(y.layout(), Layout::channels_last);
  EXPECT_TRUE(bitwise_equal(y, fake_quantize_affine(x, block, scale, zero, kInt8)));
  const Tensor none = Tensor::empty({0, 2});
  EXPECT_EQ(
      quantize_affine(none, {0, 2}, Tensor::full({1}, 1), Tensor::zeros({1}, DType::i32), kInt8).shape(),
      (Shape{0, 2}));
  const Tensor meta = Tensor::empty({4, 4}, DType::f16, Device::meta());
  const Tensor s = Tensor::empty({4}, DType::f32, Device::meta()),
               z = Tensor::empty({4}, DType::i32, Device::meta());
  EXPECT_EQ(quantize_affine(meta, {1, 4}, s, z, kInt8).dtype(), DType::i8);
}

TEST(TorchaoAffine, RejectsInvalidArguments) {
  const Tensor x = ramp({2, 6}), scale = Tensor::full({2, 2}, 1), zero = Tensor::zeros({2, 2}, DType::i32);
  const auto quantize = [&](const Shape& block, IntegerType type, const CodeRange& range = {}) {
    return quantize_affine(x, block, scale, zero, type, range);
  };
  expect_error([&] { return quantize({1, 4}, kInt8); }, "does not divide the input [2, 6]");
  expect_error([&] { return quantize({1, 0}, kInt8); }, "does not divide");
  expect_error([&] { return quantize({1}, kInt8); }, "another rank");
  expect_error([&] { return quantize({1, 2}, kInt8); }, "for 6 blocks");
  expect_error([&] { return quantize({1, 3}, kInt8, {-129, {}}); }, "quant_min -129");
  expect_error([&] { return quantize({1, 3}, kUint4, {{}, 16}); }, "use 0 to 15");
  expect_error([&] { return quantize({1, 3}, {4, false}); }, "codes of int4 cannot be stored");
  expect_error([&] { return quantize_affine(x, {1, 3}, scale, {}, kInt8); }, "the zero point is missing");
  expect_error(
      [&] {
        return quantize_affine(x, {1, 3}, scale, {}, kInt8, {}, kFloating);
      },
      "the zero point is missing");
  expect_error(
      [&] {
        return fake_quantize_affine(x, {1, 3}, scale, zero, kInt8, {}, kNone);
      },
      "its domain is NONE");
  expect_error(
      [&] {
        return quantize_affine(x, {1, 3}, scale, Tensor::zeros({3}, DType::i32), kInt8);
      },
      "the zero point is [3]");
  expect_error(
      [&] {
        return quantize_affine(x.to(DType::f64), {1, 3}, scale, zero, kInt8);
      },
      "the input is f64");
  expect_error(
      [&] {
        return quantize_affine(x, {1, 3}, scale.to(DType::f64), zero, kInt8);
      },
      "the scale is f64");
  expect_error(
      [&] {
        return quantize_affine(x.to(DType::f16), {1, 3}, scale.to(DType::f16), zero, {32, false});
      },
      "exceed the range of f16");
  const Tensor codes = Tensor::zeros({2, 6}, DType::i32);
  expect_error([&] { return dequantize_affine(codes, {1, 3}, scale, zero, kInt8); }, "use i8");
  expect_error(
      [&] {
        return dequantize_affine(codes.to(DType::i8), {1, 3}, scale, zero, kInt8, {}, kInteger, DType::i8);
      },
      "the output is i8");
}

TEST(TorchaoQParams, SupportEveryMapping) {
  const Tensor x = Tensor::from({-2.0f, 1.0f, 4.0f, 6.0f}, {2, 2});
  const auto chosen = [&](MappingType mapping) { return choose_qparams_affine(x, mapping, {1, 2}, kInt8); };
  EXPECT_EQ(chosen(MappingType::symmetric).scale.to_vector<float>(),
            (std::vector<float>{2 / 127.5f, 6 / 127.5f}));
  EXPECT_EQ(chosen(MappingType::symmetric_no_clipping_err).scale.to_vector<float>(),
            (std::vector<float>{2 / 128.0f, 6 / 127.0f}));
  const QParams asymmetric = chosen(MappingType::asymmetric);
  EXPECT_EQ(asymmetric.scale.to_vector<float>(), (std::vector<float>{3 / 255.0f, 6 / 255.0f}));
  EXPECT_EQ(asymmetric.zero_point.to_vector<std::int32_t>(), (std::vector<std::int32_t>{42, -128}));
}

TEST(TorchaoQParams, HaveTheExpectedShapes) {
  const Tensor x = ramp({2, 1, 6});
  const auto shape = [&](const Shape& block, bool keepdim) {
    return choose_qparams_affine(x, MappingType::symmetric, block, kInt8, {.keepdim = keepdim}).scale.shape();
  };
  EXPECT_EQ(shape({2, 1, 6}, false), (Shape{1}));
  EXPECT_EQ(shape({1, 1, 3}, false), (Shape{2, 1, 2}));
  EXPECT_EQ(shape({2, 1, 3}, true), (Shape{1, 1, 2}));
  EXPECT_EQ(shape({1, 1, 1}, false), Shape{});
  expect_error([&] { return shape({1, 1, 1}, true); }, "a block of all ones");
}

TEST(TorchaoQParams, IntegerZeroPointsWrap) {
  const QParams q = choose_qparams_affine(ramp({3}), MappingType::symmetric, {3}, {8, true},
                                          {.zero_point_dtype = DType::i8});
  EXPECT_EQ(q.zero_point.to_vector<std::int8_t>()[0], -128);
}

TEST(TorchaoQParams, CodeBoundsAreRoundedToTheInputType) {
  const Tensor x = Tensor::from({-3.0f, 0.0f}).to(DType::bf16);
  EXPECT_EQ(choose_qparams_affine(x, MappingType::asymmetric, {2}, {16, false}).zero_point.item(), 32768);
}

TEST(TorchaoQParams, HandleAZeroScale) {
  const Tensor zeros = Tensor::zeros({3}, DType::f16);  // where 1e-12 is 0
  const auto chosen = [&](MappingType mapping, DType type) {
    return choose_qparams_affine(zeros, mapping, {3}, kInt8, {.eps = 1e-12, .zero_point_dtype = type});
  };
  EXPECT_TRUE(std::signbit(chosen(MappingType::symmetric, DType::i32).scale.item()));
  EXPECT_EQ(chosen(MappingType::symmetric, DType::i32).zero_point.item(), 0);
  EXPECT_EQ(chosen(MappingType::asymmetric, DType::i32).zero_point.to_vector<std::int32_t>()[0], INT32_MIN);
  EXPECT_EQ(chosen(MappingType::asymmetric, DType::i64).zero_point.to_vector<std::int64_t>()[0], INT64_MIN);
  EXPECT_EQ(chosen(MappingType::asymmetric, DType::i8).zero_point.item(), 0);
  EXPECT_TRUE(std::isnan(chosen(MappingType::asymmetric, DType::f32).zero_point.item()));
}

TEST(TorchaoQParams, EpsIsTheSmallestScale) {
  const Tensor zeros = Tensor::zeros({3}, DType::f16);
  EXPECT_EQ(choose_qparams_affine(zeros, MappingType::symmetric, {3}, kInt8).scale.item(), 0x1p-14);
  EXPECT_EQ(choose_qparams_affine(zeros, MappingType::symmetric, {3}, kInt8, {.eps = 0.5}).scale.item(), 0.5);
}

TEST(TorchaoQParams, ObservedRangesGiveTheSameResult) {
  const Tensor x = ramp({4, 5});
  for (const auto mapping :
       {MappingType::symmetric, MappingType::symmetric_no_clipping_err, MappingType::asymmetric}) {
    const QParams a = choose_qparams_affine(x, mapping, {4, 5}, kUint4);
    const QParams b = choose_qparams_affine_with_min_max(
        Tensor::scalar(-4.0), Tensor::scalar(x.slice(3, 4).to_vector<float>()[4]), mapping, kUint4);
    EXPECT_TRUE(bitwise_equal(a.scale, b.scale));
    EXPECT_TRUE(bitwise_equal(a.zero_point, b.zero_point));
  }
}

TEST(TorchaoQParams, RejectInvalidArguments) {
  const Tensor x = ramp({2, 3});
  const auto symmetric = MappingType::symmetric, asymmetric = MappingType::asymmetric;
  expect_error([&] { return choose_qparams_affine(x, symmetric, {2}, kInt8); }, "another rank");
  expect_error([&] { return choose_qparams_affine(x, symmetric, {2, 2}, kInt8); }, "does not divide");
  expect_error(
      [&] {
        return choose_qparams_affine(x, symmetric, {2, 3}, kInt8, {.range = {-200, {}}});
      },
      "quant_min -200");
  expect_error(
      [&] {
        return choose_qparams_affine(Tensor::empty({0, 3}), symmetric, {1, 3}, kInt8);
      },
      "no element");
  expect_error(
      [&] {
        return choose_qparams_affine(x.to(DType::f64), symmetric, {2, 3}, kInt8);
      },
      "the input is f64");
  expect_error([&] { return choose_qparams_affine_tinygemm(x, symmetric, {2, 3}, kInt8); }, "use asymmetric");
  expect_error(
      [&] {
        return choose_qparams_affine_dont_preserve_zero(x, symmetric, {2, 3}, kInt8);
      },
      "use asymmetric");
  expect_error(
      [&] {
        return choose_qparams_affine_with_min_max(Tensor::zeros({2}), Tensor::zeros({3}), asymmetric, kInt8);
      },
      "use the same shape and dtype");
}

}  // namespace
}  // namespace fq::torchao::torchao_affine_test
