#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/reference/modelopt.h"
#include "fakequant/core/reference/tensorrt.h"
#include "fakequant/core/reference/tripy.h"
#include "golden.h"

namespace fq {
namespace {

using golden::Case;

/// `function` of a Variable, its value and gradient against those of the case; or that it refuses where it
/// must.
void compare(const Case& c, const std::function<Variable(const Variable&)>& function) {
  const Variable x(c.tensor("in/x"), true);
  if (!c.text("error").empty()) {
    EXPECT_THROW((void)function(x), ArgumentError) << c.name;
    return;
  }
  const Variable y = function(x);
  EXPECT_TRUE(golden::same_bits(y.tensor(), c.tensor("out/y"))) << c.name << "\n"
                                                                << y.tensor() << c.tensor("out/y");
  if (!c.has("in/grad_y") || !c.has("out/grad_x")) return;
  y.backward(c.tensor("in/grad_y"));
  EXPECT_TRUE(golden::same_bits(x.grad(), c.tensor("out/grad_x"))) << c.name << "\n"
                                                                   << x.grad() << c.tensor("out/grad_x");
}

TEST(Golden, FakeTensorQuant) {
  FQ_GOLDEN_OR_SKIP();
  const int cases = golden::for_each("modelopt_int.h5", "fake_tensor_quant", [](const Case& c) {
    compare(c, [&](const Variable& x) {
      return fake_tensor_quant(x, c.tensor("in/amax"), c.tensor("in/bias"),
                               static_cast<int>(c.number("num_bits", 8)), c.number("unsigned", 0) != 0,
                               c.number("narrow_range", 1) != 0, c.number("pass_through_bwd", 0) != 0);
    });
  });
  EXPECT_GE(cases, 153);
}

TEST(Golden, IntCastSte) {
  FQ_GOLDEN_OR_SKIP();
  const int cases = golden::for_each("modelopt_int.h5", "int_cast_ste", [](const Case& c) {
    compare(c, [&](const Variable& x) {
      return modelopt::int_cast_ste(x, static_cast<int>(c.number("num_bits", 8)),
                                    c.number("unsigned", 0) != 0, c.number("narrow_range", 1) != 0);
    });
  });
  EXPECT_GE(cases, 16);
}

TEST(Golden, ScaledE4m3) {
  FQ_GOLDEN_OR_SKIP();
  const int cases = golden::for_each("modelopt_float.h5", "scaled_e4m3", [](const Case& c) {
    compare(c, [&](const Variable& x) {
      return scaled_e4m3(x, c.tensor("in/amax"), c.tensor("in/bias"), static_cast<int>(c.number("E", 4)),
                         static_cast<int>(c.number("M", 3)), c.number("pass_through_bwd", 0) != 0);
    });
  });
  EXPECT_GE(cases, 60);
}

/// Codes one a byte, as the files keep them.
Tensor unpacked(const Tensor& codes) {
  if (codes.dtype() != DType::i4) return codes;
  Tensor out = Tensor::empty(codes.shape(), DType::i8);
  const auto* bytes = static_cast<const std::uint8_t*>(codes.raw());
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const int nibble = (bytes[i / 2] >> (i % 2 * 4)) & 0xf;
    out.mutable_data<std::int8_t>()[i] = static_cast<std::int8_t>(nibble < 8 ? nibble : nibble - 16);
  }
  return out;
}

Tensor packed(const Tensor& bytes, const std::string& dtype) {
  Tensor out = Tensor::zeros(bytes.shape(), dtype == "int4" ? DType::i4 : DType::f8_e4m3);
  auto* to = static_cast<std::uint8_t*>(out.mutable_raw());
  const auto* from = static_cast<const std::uint8_t*>(bytes.raw());
  for (std::int64_t i = 0; i < bytes.numel(); ++i) {
    if (dtype == "int4")
      to[i / 2] = static_cast<std::uint8_t>(to[i / 2] | ((from[i] & 0xf) << (i % 2 * 4)));
    else
      to[i] = from[i];
  }
  return out;
}

DType code_dtype(const std::string& name) {
  return name == "int8" ? DType::i8 : name == "int4" ? DType::i4 : DType::f8_e4m3;
}

void expect_same_codes(const Case& c, const Tensor& codes) {
  const Tensor got = unpacked(codes), expected = c.tensor("out/codes");
  ASSERT_EQ(got.shape(), expected.shape()) << c.name;
  const auto *a = static_cast<const std::uint8_t*>(got.raw()),
             *b = static_cast<const std::uint8_t*>(expected.raw());
  for (std::int64_t i = 0; i < got.numel(); ++i)
    if (codes.dtype() != DType::f8_e4m3 || (a[i] & 0x7f) != 0x7f || (b[i] & 0x7f) != 0x7f) {
      ASSERT_EQ(a[i], b[i]) << c.name << " element " << i;
    }
}

void expect_close(const Case& c, const Tensor& y) {
  const std::string rule = c.text("compare");
  const double tolerance = rule.starts_with("abs:") ? std::stod(rule.substr(4)) : 0;
  if (tolerance == 0) {
    EXPECT_TRUE(golden::same_bits(y, c.tensor("out/y"))) << c.name << y << c.tensor("out/y");
    return;
  }
  const auto a = y.to_vector<float>(), b = c.tensor("out/y").to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << c.name;
}

TEST(Golden, Tripy) {
  FQ_GOLDEN_OR_SKIP();
  const auto dim = [](const Case& c) {
    return c.has("dim") ? std::optional(static_cast<int>(c.number("dim", 0))) : std::nullopt;
  };
  int cases = golden::for_each("onnx.h5", "tripy_quantize", [&](const Case& c) {
    const auto run = [&] {
      return tripy::quantize(c.tensor("in/x"), c.tensor("in/scale"), code_dtype(c.text("dtype")), dim(c));
    };
    if (!c.text("error").empty())
      EXPECT_THROW((void)run(), ArgumentError) << c.name;
    else
      expect_same_codes(c, run());
  });
  cases += golden::for_each("onnx.h5", "tripy_dequantize", [&](const Case& c) {
    const std::string type = c.text("input_dtype"), output = c.text("dtype");
    const Tensor codes = type == "int8" ? c.tensor("in/codes") : packed(c.tensor("in/codes"), type);
    const DType dtype = output == "float16" ? DType::f16 : output == "bfloat16" ? DType::bf16 : DType::f32;
    expect_close(c, tripy::dequantize(codes, c.tensor("in/scale"), dtype, dim(c)));
  });
  EXPECT_GE(cases, 6);
}

TEST(Golden, TensorRt) {
  FQ_GOLDEN_OR_SKIP();
  const int cases = golden::for_each("onnx.h5", "tensorrt_quantize", [&](const Case& c) {
    const Tensor scale = c.tensor("in/scale");
    const int axis = static_cast<int>(c.number("axis", 1));
    const Tensor codes = tensorrt::quantize(c.tensor("in/x"), scale, code_dtype(c.text("to_type")), axis);
    expect_close(c, tensorrt::dequantize(codes, scale, DType::f32, axis));
  });
  EXPECT_GE(cases, 2);
}

}  // namespace
}  // namespace fq
