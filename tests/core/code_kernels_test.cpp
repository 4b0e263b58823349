#include "fakequant/core/backend/cpu/codes/code_kernels.h"

#include <numeric>

#include "fakequant/core/backend/cpu/codes/gradient_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "vector_patterns.h"

namespace fq::code_kernels_test {
namespace {

template <class Word>
void masks_in_place() {
  run_on_every_target([](std::int64_t target) {
    for (const std::int64_t count : {1, 7, 63, 64, 65, 200, 1027}) {
      std::vector<std::uint8_t> mask(static_cast<std::size_t>(count + 7) / 8 + 8, 0xff);
      for (std::size_t i = 0; i < mask.size(); i += 19) mask[i] = static_cast<std::uint8_t>(0x5b + i);
      std::vector<Word> values(static_cast<std::size_t>(count));
      std::iota(values.begin(), values.end(), Word{1});
      std::vector<Word> other(values.size());
      cpu::apply_mask(values.data(), mask.data(), count, sizeof(Word), other.data(), false);
      cpu::apply_mask(values.data(), mask.data(), count, sizeof(Word), values.data(), false);
      EXPECT_EQ(values, other) << "target " << target << ", " << count;
    }
  });
}
TEST(Masks, InPlaceMatchesOutOfPlace) {
  masks_in_place<std::uint16_t>();
  masks_in_place<std::uint32_t>();
  masks_in_place<std::uint64_t>();
}

template <class Code>
std::vector<Code> all_codes() {
  std::vector<Code> out(256 + 13);
  std::iota(out.begin(), out.end(), static_cast<Code>(-128));
  return out;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// `value(i)` is the value of code i.
template <class F>
void compare(const cpu::CodeArray& codes, F&& value) {
  run_on_every_target([&](std::int64_t target) {
    for (const std::int64_t count : {0, 1, 7, 8, 15, 33, 256, 269}) {
      const auto size = static_cast<std::size_t>(count);
      for (const float scale : {1.0f, 0.0123f, 1e-40f, 3e36f}) {
        std::vector<float> y(size + 1, -7.0f);
        cpu::dequantize(codes, count, scale, y.data());
        for (std::size_t i = 0; i < size; ++i)
          ASSERT_TRUE(same_bits(y[i], scalar::dequantize_code(value(i), scale))) << i << " on " << target;
        ASSERT_EQ(y[size], -7.0f);
      }
      if (bit_width(codes.dtype) != 8) continue;
      std::vector<bfloat16> halves(size + 1, bfloat16(-7.0f));
      cpu::decode(codes, count, halves.data());
      for (std::size_t i = 0; i < size; ++i)
        ASSERT_TRUE(same_bits(static_cast<float>(halves[i]), value(i))) << i << " on " << target;
      ASSERT_EQ(static_cast<float>(halves[size]), -7.0f);
    }
  });
}

template <class Code>
void compare_integers() {
  const auto codes = all_codes<Code>();
  compare({codes.data(), cpp_dtype<Code>}, [&](std::size_t i) { return static_cast<float>(codes[i]); });
}

TEST(CodeKernels, IntegersDecodeExactly) {
  compare_integers<std::int8_t>();
  compare_integers<std::uint8_t>();
  compare_integers<std::int16_t>();
  compare_integers<std::int32_t>();
}

TEST(CodeKernels, EveryE4m3ByteDecodesLikeTheScalar) {
  const auto codes = all_codes<std::uint8_t>();
  compare({codes.data(), DType::f8_e4m3}, [&](std::size_t i) { return scalar::decode_e4m3(codes[i]); });
}

/// Every float that a rounding gives, its neighbours and the ties between them.
std::vector<float> e4m3_neighbourhood() {
  auto out = patterns();
  for (int byte = 0; byte < 0x7f; ++byte) {
    const float v = scalar::decode_e4m3(static_cast<std::uint8_t>(byte));
    const float next = byte < 0x7e ? scalar::decode_e4m3(static_cast<std::uint8_t>(byte + 1)) : 480.0f;
    for (const float middle : {v, (v + next) / 2})
      for (const float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f)})
        out.insert(out.end(), {x, -x});
  }
  out.resize(out.size() / 16 * 16);
  return out;
}

TEST(CodeKernels, E4m3CodesMatchTheScalarFormulaBitwise) {
  const auto x = e4m3_neighbourhood();
  const auto count = static_cast<std::int64_t>(x.size());
  for (const cpu::GridRow& row :
       {cpu::GridRow{1.0f, -448, 448, 448.0f, -448.0f}, cpu::GridRow{0.0123f, -448, 448, 5.5104f, -5.5104f}})
    run_on_every_target([&](std::int64_t target) {
      std::vector<cpu::E4m3> codes(x.size());
      std::vector<std::uint8_t> mask(x.size() / 8);
      bool nan = false;
      ASSERT_EQ(cpu::quantize(x.data(), count, row, codes.data(), mask.data(), &nan), count);
      EXPECT_TRUE(nan);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float v = x[i];
        const float rounded = v != v ? 0 : scalar::quantize_e4m3(v, row.scale);
        ASSERT_EQ(codes[i].byte, scalar::encode_e4m3(rounded)) << v << " on " << target;
        ASSERT_EQ(bit(mask, i), scalar::mask_closed(v, row.mask_lower, row.amax)) << v << " on " << target;
      }
    });
}

TEST(CodeKernels, DecodeWholeTensorsInTheirLayout) {
  std::vector<std::int8_t> codes(2 * 3 * 67 * 129);
  std::iota(codes.begin(), codes.end(), std::int8_t{0});
  const Tensor x = Tensor::from(codes, {2, 3, 67, 129}).to(Layout::channels_last);
  Tensor floats = Tensor::empty(x.shape(), DType::f32, x.device(), x.layout());
  Tensor halves = Tensor::empty(x.shape(), DType::bf16, x.device(), x.layout());
  const Grid grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(1));
  cpu::decode({x, grid, {}}, floats);
  cpu::decode({x, grid, {}}, halves);
  EXPECT_TRUE(bitwise_equal(floats, x.to(DType::f32)));
  EXPECT_TRUE(bitwise_equal(halves.to(DType::f32), floats));
  EXPECT_THROW(cpu::decode({x.to(DType::i16), grid, {}}, halves), ArgumentError);
}

}  // namespace
}  // namespace fq::code_kernels_test
