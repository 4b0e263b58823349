#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/detail/float_blocks.h"

namespace fq::packed_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<std::int8_t> kCodes{-8, 7, -1, 0, 3, -2, 1};

TEST(Packed, StoresLowBitsFirst) {
  const Tensor codes = Tensor::from(kCodes, {7});
  const Tensor i4 = pack_codes(codes, DType::i4), i2 = pack_codes(codes, DType::i2);
  ASSERT_EQ(i4.nbytes(), 4);
  ASSERT_EQ(i2.nbytes(), 2);
  EXPECT_EQ(static_cast<const std::uint8_t*>(i4.raw())[0], 0x78);
  EXPECT_EQ(static_cast<const std::uint8_t*>(i4.raw())[3], 0x01);
  EXPECT_EQ(static_cast<const std::uint8_t*>(i2.raw())[0], 0b00111100);
  EXPECT_EQ(unpack_codes(i4).to_vector<std::int8_t>(), kCodes);
  EXPECT_EQ(unpack_codes(i2).to_vector<std::int8_t>(), (std::vector<std::int8_t>{0, -1, -1, 0, -1, -2, 1}));
  EXPECT_EQ(unpack_codes(pack_codes(codes, DType::u4)).to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{8, 7, 15, 0, 3, 14, 1}));
}

TEST(Packed, HandlesEveryStorageType) {
  const auto values = [](const Tensor& codes, std::int64_t begin) {
    std::vector<float> buffer(2);
    const float* at = detail::read_floats(codes, begin, 2, buffer.data());
    return std::vector<float>(at, at + 2);
  };
  const Tensor codes = Tensor::from(kCodes, {7});
  EXPECT_EQ(values(pack_codes(codes, DType::i4), 1), (std::vector<float>{7, -1}));
  EXPECT_EQ(values(pack_codes(codes, DType::u4), 1), (std::vector<float>{7, 15}));
  EXPECT_EQ(values(pack_codes(codes, DType::i2), 1), (std::vector<float>{-1, -1}));
  EXPECT_EQ(values(pack_codes(codes, DType::u2), 5), (std::vector<float>{2, 1}));
  EXPECT_EQ(values(pack_codes(codes, DType::f4_e2m1), 1), (std::vector<float>{6, -6}));
  Tensor bytes = Tensor::empty({2}, DType::f8_e5m2);
  static_cast<std::uint8_t*>(bytes.mutable_raw())[0] = 0x3c;
  static_cast<std::uint8_t*>(bytes.mutable_raw())[1] = 0xc0;
  EXPECT_EQ(values(bytes, 0), (std::vector<float>{1, -2}));
}

TEST(Packed, RejectsInvalidArguments) {
  EXPECT_THAT([] { (void)pack_codes(Tensor::zeros({2}), DType::i4); },
              ThrowsMessage<ArgumentError>(HasSubstr("use i8 or u8")));
  EXPECT_THAT([] { (void)pack_codes(Tensor::zeros({2}, DType::i8), DType::i8); },
              ThrowsMessage<ArgumentError>(HasSubstr("fewer than 8 bits")));
  EXPECT_THAT([] { (void)unpack_codes(Tensor::zeros({2}, DType::f8_e4m3)); },
              ThrowsMessage<ArgumentError>(HasSubstr("fewer than 8 bits")));
}

}  // namespace
}  // namespace fq::packed_test
