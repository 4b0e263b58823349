#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/onnx.h"
#include "fakequant/reference/tensorrt.h"

namespace fq::linear_codes_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }
std::vector<std::int8_t> codes(const Tensor& t) {
  return (bit_width(t.dtype()) < 8 ? unpack_codes(t) : t).to_vector<std::int8_t>();
}
std::vector<unsigned> bytes(const Tensor& t) {
  const auto* first = static_cast<const std::uint8_t*>(t.raw());
  return {first, first + t.nbytes()};
}
template <class F>
void expect_error(F f, const char* message) {
  EXPECT_THAT([&] { (void)f(); }, ThrowsMessage<ArgumentError>(HasSubstr(message)));
}
Tensor meta(Shape shape, DType dtype = DType::f32) {
  return Tensor::empty(std::move(shape), dtype, Device::meta());
}

TEST(Constant, AcceptsNumbersListsTensorsAndVariables) {
  const auto of = [](const Constant& c) { return c.tensor("f", "scale"); };
  EXPECT_EQ(of(0.5).shape(), Shape{});
  EXPECT_EQ(values(of({0.5, 2})), (std::vector<float>{0.5f, 2}));
  EXPECT_EQ(of({{1, 2, 3}, {4, 5, 6}}).shape(), (Shape{2, 3}));
  EXPECT_EQ(of(std::vector<std::vector<float>>{{1}, {2}}).shape(), (Shape{2, 1}));
  EXPECT_EQ(of(std::vector<Constant>{}).shape(), (Shape{0}));
  EXPECT_EQ(of(Tensor::zeros({4}, DType::f16)).dtype(), DType::f16);
  EXPECT_EQ(of(Variable(Tensor::zeros({4}))).shape(), (Shape{4}));
  EXPECT_EQ(Constant(0.1).tensor("f", "scale", DType::bf16).dtype(), DType::bf16);
  expect_error([&] { return of({}); }, "the scale is missing");
  expect_error([&] { return of({{1, 2}, {3}}); }, "items of shape [2] and of [1]");
  expect_error([&] { return of({1, Tensor::scalar(2)}); }, "elements that are not numbers");
  expect_error([&] { return of(Variable(Tensor::zeros({4}), true)); }, "the scale needs a gradient");
}

TEST(Tripy, PacksFourBitsLowNibbleFirst) {
  const Tensor q = tripy::quantize(Tensor::from({1.0f, -1.0f, 100.0f, -100.0f}), 1, DType::i4);
  EXPECT_EQ(bytes(q), (std::vector<unsigned>{0xf1, 0x87}));
  EXPECT_EQ(values(tripy::dequantize(q, 0.5)), (std::vector<float>{0.5f, -0.5f, 3.5f, -4.0f}));
  EXPECT_EQ(tripy::dequantize(q, 0.5, DType::f16).dtype(), DType::f16);
}

TEST(Tripy, ScalesPerTensorChannelAndBlock) {
  const Tensor x = Tensor::from({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f}, {4, 2});
  EXPECT_EQ(codes(tripy::quantize(x, {2}, DType::i8, 0)), (std::vector<std::int8_t>{0, 1, 2, 2, 2, 3, 4, 4}));
  EXPECT_EQ(codes(tripy::quantize(x, {1, 2}, DType::i8, 1)),
            (std::vector<std::int8_t>{1, 1, 3, 2, 5, 3, 7, 4}));
  EXPECT_EQ(codes(tripy::quantize(x, {{1, 2}, {2, 4}}, DType::i4)),
            (std::vector<std::int8_t>{1, 1, 3, 2, 2, 2, 4, 2}));
  EXPECT_EQ(codes(tripy::quantize(Variable(x.to(DType::bf16)), 4, DType::i8)),
            (std::vector<std::int8_t>{0, 0, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(tripy::quantize(meta({2, 3}), 1, DType::i4).shape(), (Shape{2, 3}));
  EXPECT_EQ(tripy::quantize(Tensor::zeros({0, 3}), 1, DType::i4).nbytes(), 0);
}

TEST(Tripy, RejectsWhatThePublicFunctionRejects) {
  const Tensor x = Tensor::zeros({4, 6});
  const auto quantize = [&](const Constant& scale, DType dtype, std::optional<int> dim = {}) {
    return [=] { return tripy::quantize(x, scale, dtype, dim); };
  };
  expect_error(quantize(Tensor::zeros({}, DType::f16), DType::i8), "the input is f32 and the scale f16");
  expect_error([&] { return tripy::quantize(x.to(DType::f64), 1, DType::i8); },
               "the input is f64: use one of f32");
  expect_error(quantize(1, DType::u8), "the dtype is u8: use one of i8, i4, f8_e4m3");
  expect_error(quantize(1, DType::i8, 0), "dim is 0 and the scale []");
  expect_error(quantize(Tensor::zeros({4, 1}), DType::i8, 0), "dim is 0 and the scale [4, 1]");
  expect_error(quantize(Tensor::zeros({4}), DType::i8), "dim is missing");
  expect_error(quantize(Tensor::zeros({4}), DType::i8, 1), "axis 1 of the input [4, 6] has 6");
  expect_error(quantize(Tensor::zeros({4}), DType::i8, 2), "axis");
  expect_error(quantize(Tensor::zeros({2, 6}), DType::i8), "blocks need i4");
  expect_error(
      [] {
        return tripy::quantize(Tensor::zeros({4, 6, 1}), Tensor::zeros({2, 6}), DType::i4);
      },
      "blocks need 2 axes");
  expect_error(quantize(Tensor::zeros({3, 6}), DType::i4), "choose a divisor of 4");
  expect_error(quantize(Tensor::zeros({0, 6}), DType::i4), "choose a divisor of 4");
  expect_error(quantize(Tensor::zeros({2, 3}), DType::i4), "has 3 columns");
  expect_error(quantize(Tensor::zeros({1, 1, 1}), DType::i4), "use one number, or a list");
  expect_error(quantize(Variable(Tensor::scalar(1), true), DType::i8), "the scale needs a gradient");
  expect_error([&] { return tripy::quantize(Variable(x, true), 1, DType::i8); },
               "the input needs a gradient");
  expect_error([&] { return tripy::dequantize(x, 1); }, "the input is f32: use one of i8, i4, f8_e4m3");
  const Tensor q = Tensor::zeros({4, 6}, DType::i8);
  expect_error([&] { return tripy::dequantize(q, 1, DType::bf16); },
               "the dtype is bf16: use one of f32, f16");
  expect_error([&] { return tripy::dequantize(q, Tensor::zeros({2, 6})); }, "blocks need i4");
}

TEST(TensorRT, QuantizesToInt8ByDefault) {
  const Tensor x = Tensor::from({1.0f, -300.0f, kInf, kNaN}, {2, 2});
  EXPECT_EQ(codes(tensorrt::quantize(x, 2)), (std::vector<std::int8_t>{0, -128, 127, -128}));
  EXPECT_EQ(codes(tensorrt::quantize(x, {2, 1}, DType::i8, 0, {0, 0})),
            (std::vector<std::int8_t>{0, -128, 127, -128}));
  EXPECT_EQ(codes(tensorrt::quantize(x, {2}, DType::i8, 7)), (std::vector<std::int8_t>{0, -128, 127, -128}));
  EXPECT_EQ(bytes(tensorrt::quantize(x, 1, DType::f8_e4m3)), (std::vector<unsigned>{0x38, 0xf9, 0x7e, 0x7f}));
}

TEST(TensorRT, RejectsWhatTheLayerRejects) {
  const Tensor x = Tensor::zeros({4, 6});
  const auto quantize = [&](const Constant& scale, DType to_type = DType::i8,
                            const Constant& zero_point = {}) {
    return [=] { return tensorrt::quantize(x, scale, to_type, 1, zero_point); };
  };
  expect_error(quantize(1, DType::u8), "use one of i8, i4, f8_e4m3");
  expect_error([&] { return tensorrt::quantize(x.to(DType::i8), 1); }, "the input is i8: use one of f32");
  expect_error(quantize(Tensor::zeros({}, DType::f64)), "the scale is f64");
  expect_error(quantize(Tensor::full({2, 6}, 1)), "blocks need i4");
  expect_error(quantize(Tensor::full({3, 6}, 1), DType::i4), "choose a divisor of 4");
  expect_error(quantize(Tensor::full({2, 5}, 1), DType::i4), "has 5 columns");
  expect_error(quantize({1, 2, 3}), "axis 1 of the input [4, 6] has 6");
  expect_error(quantize(0), "must be above 0");
  expect_error(quantize({1, 1, 1, 1, 1, -1}), "the scale has -1");
  expect_error(quantize(Tensor::full({}, kNaN)), "the scale has nan");
  expect_error(quantize(1, DType::i8, {0}), "use one shape");
  expect_error(quantize(1, DType::i8, 1), "only zeros are possible");
  expect_error(quantize(Variable(Tensor::scalar(1), true)), "the scale needs a gradient");
  expect_error(quantize(1, DType::i8, Variable(Tensor::scalar(0), true)), "the zero point needs a gradient");
  expect_error([] { return tensorrt::quantize(meta({1 << 16, 1 << 15}), 1); }, "at most 2^31 - 1");
  expect_error(
      [] {
        return tensorrt::quantize(meta({1}), meta({1 << 16, 1 << 15}));
      },
      "the scale has 2147483648");
  EXPECT_EQ(tensorrt::quantize(meta({(std::int64_t{1} << 31) - 1}), 1).numel(), (std::int64_t{1} << 31) - 1);
  const Tensor q = Tensor::zeros({4, 6}, DType::i8);
  expect_error([&] { return tensorrt::dequantize(q, 1, DType::f64); }, "the dtype is f64");
  expect_error([&] { return tensorrt::dequantize(x, 1); }, "use one of i8, i4, f8_e4m3");
  expect_error([&] { return tensorrt::dequantize(q, 1, DType::f32, 1, 2); }, "only zeros are possible");
}

TEST(Onnx, HandlesEveryCodeType) {
  const Tensor x = Tensor::from({-1e9f, -1.5f, 0.5f, 2.5f, 1e9f, kNaN});
  const auto integers = [&](DType dtype, const Constant& zero_point) {
    const Tensor q = onnx::quantize_linear(x, 1, zero_point, 1, 0, true, dtype);
    return values((bit_width(dtype) < 8 ? unpack_codes(q) : q).to(DType::f32));
  };
  EXPECT_EQ(integers(DType::i8, {}), (std::vector<float>{-128, -2, 0, 2, 127, -128}));
  EXPECT_EQ(integers(DType::u8, 3), (std::vector<float>{0, 1, 3, 5, 255, 0}));
  EXPECT_EQ(integers(DType::i16, -32768),
            (std::vector<float>{-32768, -32768, -32768, -32766, 32767, -32768}));
  EXPECT_EQ(integers(DType::u16, 65535), (std::vector<float>{0, 65533, 65535, 65535, 65535, 0}));
  EXPECT_EQ(integers(DType::i2, {}), (std::vector<float>{-2, -2, 0, 1, 1, -2}));
  EXPECT_EQ(integers(DType::u2, 1), (std::vector<float>{0, 0, 1, 3, 3, 0}));
  EXPECT_EQ(integers(DType::u4, 8), (std::vector<float>{0, 6, 8, 10, 15, 0}));
  const auto floats = [&](DType dtype, bool saturate) {
    return bytes(onnx::quantize_linear(x, 1, {}, 1, 0, saturate, dtype));
  };
  EXPECT_EQ(floats(DType::f8_e4m3, true), (std::vector<unsigned>{0xfe, 0xbc, 0x30, 0x42, 0x7e, 0x7f}));
  EXPECT_EQ(floats(DType::f8_e4m3, false), (std::vector<unsigned>{0xff, 0xbc, 0x30, 0x42, 0x7f, 0x7f}));
  EXPECT_EQ(floats(DType::f8_e5m2, true), (std::vector<unsigned>{0xfb, 0xbe, 0x38, 0x41, 0x7b, 0x7f}));
  EXPECT_EQ(floats(DType::f8_e5m2, false), (std::vector<unsigned>{0xfc, 0xbe, 0x38, 0x41, 0x7c, 0x7f}));
  EXPECT_EQ(floats(DType::f4_e2m1, false), (std::vector<unsigned>{0xbf, 0x41, 0x77}));
}

TEST(Onnx, Fp4ZeroPointTurnsMinusZeroIntoPlusZero) {
  const Tensor x = Tensor::from({-0.0f, -0.1f, -1e-30f, 0.0f});
  const Tensor zero = pack_codes(Tensor::from<std::uint8_t>({0}, {1}), DType::f4_e2m1).reshape({});
  const auto codes = [&](const Constant& zero_point) {
    return bytes(onnx::quantize_linear(x, 1e20, zero_point, 1, 0, true, DType::f4_e2m1));
  };
  EXPECT_EQ(codes({}), (std::vector<unsigned>{0x88, 0x08}));
  EXPECT_EQ(codes(zero), (std::vector<unsigned>{0x80, 0x00}));
}

TEST(Onnx, OverflowsHalfAStepAboveTheMaximum) {
  const Tensor x = Tensor::from({464.0f, 464.1f, 61439.0f, 61440.0f});
  const auto e4m3 = bytes(onnx::quantize_linear(x, 1, {}, 1, 0, false, DType::f8_e4m3));
  const auto e5m2 = bytes(onnx::quantize_linear(x, 1, {}, 1, 0, false, DType::f8_e5m2));
  EXPECT_EQ(e4m3, (std::vector<unsigned>{0x7e, 0x7f, 0x7f, 0x7f}));
  EXPECT_EQ((std::vector<unsigned>{e5m2[2], e5m2[3]}), (std::vector<unsigned>{0x7b, 0x7c}));
}

TEST(Onnx, RoundTripsPartialBlocksAndZeroPoints) {
  const Tensor x = Tensor::from({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, {2, 3});
  const Tensor q = onnx::quantize_linear(x, {{1, 2}, {1, 0.5}}, {{0, 1}, {-1, 2}}, 1, 2, true, DType::i8);
  EXPECT_EQ(codes(q), (std::vector<std::int8_t>{1, 2, 3, 3, 4, 14}));
  const Tensor y = onnx::dequantize_linear(q, Tensor::from({1.0f, 2.0f, 1.0f, 0.5f}, {2, 2}).to(DType::f16),
                                           {{0, 1}, {-1, 2}}, 1, 2);
  EXPECT_EQ(y.dtype(), DType::f16);
  EXPECT_EQ(values(y.to(DType::f32)), (std::vector<float>{1, 2, 4, 4, 5, 6}));
  const Tensor z = Tensor::from({std::uint8_t{10}});
  EXPECT_EQ(onnx::quantize_linear(x, 1, z).dtype(), DType::u8);
  EXPECT_EQ(onnx::quantize_linear(x, 1, z.to(DType::u16)).dtype(), DType::u16);
  EXPECT_EQ(values(onnx::dequantize_linear(Tensor::from({std::int32_t{-5}}), 0.5)),
            (std::vector<float>{-2.5f}));
  EXPECT_EQ(codes(onnx::quantize_linear(Tensor::from({std::int32_t{7}}), 2, {}, 1, 0, true, DType::i8)),
            (std::vector<std::int8_t>{4}));
}

TEST(Onnx, RejectsInvalidArguments) {
  const Tensor x = Tensor::zeros({4, 6});
  const auto quantize = [&](const Constant& scale, const Constant& z = {}, int axis = 1,
                            std::int64_t block = 0, std::optional<DType> dtype = {}) {
    return [=] { return onnx::quantize_linear(x, scale, z, axis, block, true, dtype); };
  };
  const Tensor list = Tensor::full({6}, 1);
  expect_error([&] { return onnx::quantize_linear(x.to(DType::f64), 1); }, "the input is f64");
  expect_error(quantize(Tensor::scalar(1, DType::f16)), "the input is f32 and the scale f16");
  expect_error(quantize(list, {}, 0), "axis 0 of the input [4, 6] has 4");
  expect_error(quantize(list, {}, 2), "axis");
  expect_error(quantize(Tensor::zeros({4, 3})), "use one number, or a list");
  expect_error(quantize(Tensor::zeros({4, 3}), {}, 1, -2), "block_size is -2");
  expect_error(quantize(Tensor::zeros({4, 2}), {}, 1, 2), "need [4, 3]");
  expect_error(quantize(1, {}, 1, 2), "need [4, 3]");
  expect_error([] { return onnx::quantize_linear(Tensor::zeros({4}), Tensor::zeros({2}), {}, 0, 2); },
               "blocks need 2 axes");
  expect_error(quantize(list, 1), "use one shape");
  expect_error(quantize(1, Tensor::zeros({}, DType::i8), 1, 0, DType::u8),
               "the zero point is i8 and the codes are u8");
  expect_error(quantize(1, 256), "of u8 has 256: use integers from 0 to 255");
  expect_error(quantize(1, 0.5), "the zero point of u8 has 0.5");
  expect_error(quantize(1, 1, 1, 0, DType::f8_e4m3), "of f8_e4m3 has 1: use integers from 0 to 0");
  expect_error(quantize(1, {}, 1, 0, DType::i32), "the output_dtype is i32");
  expect_error(quantize(Variable(Tensor::scalar(1), true)), "the scale needs a gradient");
  expect_error([&] { return onnx::quantize_linear(Variable(x, true), 1); }, "the input needs a gradient");
  expect_error([&] { return onnx::dequantize_linear(x, 1); }, "the input is f32");
  const Tensor q = Tensor::zeros({4, 6}, DType::i32);
  expect_error([&] { return onnx::dequantize_linear(q, 1, 1); }, "of i32 has 1: use integers from 0 to 0");
  expect_error([&] { return onnx::dequantize_linear(q, 1, {}, 1, 0, DType::f64); },
               "the output_dtype is f64");
}

}  // namespace
}  // namespace fq::linear_codes_test
