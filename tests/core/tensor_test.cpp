#include "fakequant/core/tensor.h"

#include <limits>
#include <sstream>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/quantized.h"

namespace fq::tensor_test {
namespace {

TEST(Tensor, ChannelsLastKeepsLogicalOrder) {
  std::vector<float> values(2 * 3 * 2 * 2);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor x = Tensor::from(values, {2, 3, 2, 2});
  const Tensor y = x.to(Layout::channels_last);
  EXPECT_EQ(y.to_vector<float>(), values);
  EXPECT_EQ(y.data<float>(Layout::channels_last)[1], 4.0f);  // n 0, h 0, w 0, channel 1
  EXPECT_THROW((void)y.data<float>(), ArgumentError);
  EXPECT_THROW((void)y.reshape({24}), ArgumentError);
  EXPECT_TRUE(bitwise_equal(x, y));
}

TEST(Tensor, PackedCodesSupportBothLayouts) {
  for (const DType dtype : {DType::u1, DType::i2, DType::u2, DType::i4, DType::u4, DType::f4_e2m1}) {
    SCOPED_TRACE(name(dtype));
    std::vector<std::uint8_t> values(2 * 3 * 5 * 1);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(7 * i % 16);
    const Tensor rows = pack_codes(Tensor::from(values, {2, 3, 5, 1}), dtype);
    const Tensor last = rows.to(Layout::channels_last);
    EXPECT_EQ(last.layout(), Layout::channels_last);
    EXPECT_TRUE(bitwise_equal(unpack_codes(last), unpack_codes(rows).to(Layout::channels_last)));
    EXPECT_TRUE(bitwise_equal(last.to(Layout::row_major), rows));
    EXPECT_TRUE(bitwise_equal(last, rows));
  }
}

TEST(Tensor, CopiesShareAndWritersBumpTheVersion) {
  Tensor x = Tensor::zeros({4});
  Tensor y = x;
  const auto before = y.version();
  x.mutable_data<float>()[2] = 5.0f;
  EXPECT_EQ(y.data<float>()[2], 5.0f);
  EXPECT_GT(y.version(), before);
  const Tensor other = x.clone(), another = x.clone();
  EXPECT_NE(other.version(), another.version());  // values derived from one do not match the other
}

TEST(Tensor, ReshapeAndSliceAreViews) {
  Tensor x = Tensor::from({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, {3, 2});
  EXPECT_EQ(x.slice(1, 2).to_vector<float>(), (std::vector<float>{3, 4}));
  EXPECT_EQ(x.reshape({2, -1}).shape(), (Shape{2, 3}));
  x.slice(2, 3).mutable_data<float>()[0] = 9.0f;
  EXPECT_EQ(x.data<float>()[4], 9.0f);
  EXPECT_THROW((void)x.slice(2, 4), ArgumentError);
  EXPECT_THROW((void)x.reshape({4}), ArgumentError);
}

TEST(Tensor, ConvertsRoundingHalfToEvenAndSaturating) {
  const Tensor x =
      Tensor::from({0.5f, 1.5f, -2.5f, 300.0f, -300.0f, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_EQ(x.to(DType::i8).to_vector<std::int8_t>(), (std::vector<std::int8_t>{0, 2, -2, 127, -128, 0}));
  EXPECT_EQ(x.to(DType::i8).to(DType::u16).to_vector<std::uint16_t>(),
            (std::vector<std::uint16_t>{0, 2, 0, 127, 0, 0}));
}

TEST(Tensor, HalfTypesRoundTripEveryPattern) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    float16 h;
    h.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(h);
    if (value == value) {
      ASSERT_EQ(float16(value).bits, h.bits) << bits;
    }
    bfloat16 b;
    b.bits = h.bits;
    const auto wide = static_cast<float>(b);
    if (wide == wide) {
      ASSERT_EQ(bfloat16(wide).bits, b.bits) << bits;
    }
  }
}

TEST(Tensor, PrintsValuesAndHintsForPackedTypes) {
  std::ostringstream out;
  out << Tensor::from({1.5f, -2.0f}) << Tensor::zeros({4}, DType::u1)
      << Tensor::empty({2}, DType::f32, Device::meta());
  EXPECT_EQ(out.str(),
            "Tensor([1.5, -2], f32 [2] cpu)Tensor(1 packed bytes: dequantize to see values, u1 [4] cpu)"
            "Tensor(no values, f32 [2] meta)");
}

}  // namespace
}  // namespace fq::tensor_test
