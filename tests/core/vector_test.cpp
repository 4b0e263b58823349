#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "fakequant/core/accumulator.h"
#include "fakequant/core/backend/cpu/codes/accumulator_kernels.h"
#include "fakequant/core/backend/cpu/codes/quantize_kernels.h"
#include "fakequant/core/backend/cpu/elementwise/function_kernels.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "vector_patterns.h"

namespace fq::vector_test {
namespace {

template <class Code>
void compare_quantize(const cpu::GridRow& row) {
  const auto x = patterns();
  const auto count = static_cast<std::int64_t>(x.size());
  run_on_every_target([&](std::int64_t target) {
    std::vector<Code> codes(x.size());
    std::vector<std::uint8_t> mask(x.size() / 8);
    bool nan = false;
    ASSERT_EQ(cpu::quantize(x.data(), count, row, codes.data(), mask.data(), &nan), count);
    EXPECT_TRUE(nan);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float v = x[i];
      const float code = v != v ? 0 : scalar::quantize_code(v, row.scale, row.lower, row.upper);
      ASSERT_EQ(codes[i], static_cast<Code>(code)) << v << " on " << target;
      ASSERT_EQ(bit(mask, i), scalar::mask_closed(v, row.mask_lower, row.amax)) << v << " on " << target;
    }
    nan = false;
    std::vector<Code> without(x.size());
    (void)cpu::quantize(x.data(), count, row, without.data(), nullptr, &nan);
    ASSERT_EQ(without, codes);
    nan = false;
    const std::vector<float> ones(32, 1.0f);
    (void)cpu::quantize(ones.data(), 32, row, without.data(), nullptr, &nan);
    EXPECT_FALSE(nan);
  });
}

TEST(Vectors, QuantizeMatchesTheScalarFormulaBitwise) {
  compare_quantize<std::int8_t>({1.0f, -128, 127, 127.0f, -127.0f});
  compare_quantize<std::int8_t>({0.0123f, -127, 127, 1.5621f, -1.5621f});
  compare_quantize<std::int8_t>({0x1p-24f / 127, 0, 0, 0x1p-24f, -0x1p-24f});
  compare_quantize<std::uint8_t>({1.0f, 0, 255, 255.0f, 0});
  compare_quantize<std::uint8_t>({3.3e-5f, 0, 15, 4.95e-4f, 0});
}

constexpr std::int64_t kRoom = 1000;  // for a bias

std::vector<std::int32_t> sums() {
  std::vector<std::int32_t> out;
  for (std::int64_t v = std::numeric_limits<std::int32_t>::min() + kRoom;
       v <= std::numeric_limits<std::int32_t>::max() - kRoom; v += 65537 * 3)
    out.push_back(static_cast<std::int32_t>(v));
  for (int v = -3000; v < 3000; ++v) out.push_back(v * 7);
  out.resize(out.size() / 16 * 16);
  return out;
}

template <class Code>
void expect_code(const cpu::SumGrid& grid, std::int32_t sum, std::size_t c, Code code, bool passes) {
  const auto& [bias, scale, shift] = grid.values;
  const auto& reader = grid.reader;
  const auto a = static_cast<float>(sum + (bias == nullptr ? 0 : bias[c]));
  float expected = scalar::requantize_code(a, grid.multiplier[c], reader.lower, reader.upper);
  float v = scalar::dequantize_code(a, scale[c]);
  if (shift != nullptr) {
    expected = scalar::normalized_code(a, grid.multiplier[c], grid.offset[c], reader.lower, reader.upper);
    v = scalar::normalized_sum(a, scale[c], shift[c]);
  }
  ASSERT_EQ(code, static_cast<Code>(expected)) << sum;
  ASSERT_EQ(passes, reader.open ? scalar::mask_open_lower(v, reader.below, reader.amax)
                                : scalar::mask_closed(v, reader.below, reader.amax))
      << sum;
}

/// With and without a bias, products and normalized sums.
template <class Code>
void compare_requantize(cpu::SumGrid grid) {
  const auto x = sums();
  const auto count = static_cast<std::int64_t>(x.size());
  std::vector<float> scale, multiplier, shift, offset;
  std::vector<std::int32_t> bias(48);
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<std::int32_t>(i) * 41 - 985;
  for (std::size_t i = 0; i < bias.size(); ++i) {
    scale.push_back(1e-3f * static_cast<float>(1 + i % 17));
    shift.push_back(0.3f * static_cast<float>(i) - 5.0f);
    multiplier.push_back(scale.back() / 0.07f);
    offset.push_back(shift.back() / 0.07f);
  }
  grid.values.scale = scale.data();
  grid.multiplier = multiplier.data();
  for (const bool normalized : {false, true})
    run_on_every_target([&](std::int64_t target) {
      SCOPED_TRACE(target);
      grid.values.bias = normalized ? nullptr : bias.data();
      grid.values.shift = normalized ? shift.data() : nullptr;
      grid.offset = normalized ? offset.data() : nullptr;
      std::vector<Code> codes(x.size());
      std::vector<std::uint8_t> mask(x.size() / 8);
      ASSERT_EQ(cpu::requantize(x.data(), count, grid, codes.data(), mask.data()), count);
      for (std::size_t i = 0; i < x.size(); ++i)
        expect_code(grid, x[i], grid.width == 0 ? 0 : i % static_cast<std::size_t>(grid.width), codes[i],
                    bit(mask, i));
    });
}

TEST(Vectors, RequantizeMatchesTheScalarFormulaBitwise) {
  for (const std::int64_t width : {0, 16, 48}) {
    cpu::SumGrid grid{};
    grid.width = width;
    grid.reader = {.lower = -128, .upper = 127, .below = -8.89f, .amax = 8.89f, .open = false};
    compare_requantize<std::int8_t>(grid);
    grid.reader = {.lower = 0, .upper = 127, .below = 0, .amax = 8.89f, .open = true};
    compare_requantize<std::int8_t>(grid);
    grid.reader = {.lower = 0, .upper = 255, .below = 0, .amax = 17.85f, .open = true};
    compare_requantize<std::uint8_t>(grid);
  }
}

TEST(Vectors, DequantizeMatchesTheScalarFormulaBitwise) {
  std::vector<std::int8_t> codes(256);
  for (int i = 0; i < 256; ++i) codes[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(i - 128);
  const auto* raw = reinterpret_cast<const std::uint8_t*>(codes.data());
  for (const float scale : {0.0123f, 1e-40f, 3e36f})
    run_on_every_target([&](std::int64_t) {
      std::vector<float> a(256), b(256);
      cpu::dequantize({codes.data(), DType::i8}, 256, scale, a.data());
      cpu::dequantize({raw, DType::u8}, 256, scale, b.data());
      for (std::size_t i = 0; i < 256; ++i) {
        ASSERT_EQ(a[i], scalar::dequantize_code(static_cast<float>(codes[i]), scale));
        ASSERT_EQ(b[i], scalar::dequantize_code(static_cast<float>(raw[i]), scale));
      }
    });
}

TEST(Vectors, HalvesMatchTheScalarConversionsBitwise) {
  const auto x = patterns();
  run_on_every_target([&](std::int64_t target) {
    for (const std::size_t begin : {0, 1, 5}) {
      const std::size_t count = x.size() - begin - 3;
      std::vector<bfloat16> wide(count);
      std::vector<float16> near(count);
      cpu::narrow_floats(x.data() + begin, static_cast<std::int64_t>(count), wide.data());
      cpu::narrow_floats(x.data() + begin, static_cast<std::int64_t>(count), near.data());
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(wide[i].bits, bfloat16(x[begin + i]).bits) << target << ": " << x[begin + i];
        ASSERT_EQ(near[i].bits, float16(x[begin + i]).bits) << target << ": " << x[begin + i];
      }
    }
  });
}

/// Channels that begin in the middle of a mask byte: heads and tails one by one, vectors between.
TEST(Vectors, RunsMayBeUnaligned) {
  for (const std::int64_t channels : {1, 3, 20, 64, 67})
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
      for (const bool relu : {false, true}) {
        const Shape shape{3, channels, 5, 7};
        std::vector<std::int32_t> sums(static_cast<std::size_t>(numel(shape))), bias;
        for (std::size_t i = 0; i < sums.size(); ++i)
          sums[i] = static_cast<std::int32_t>(i * 7919 % 60013) - 30000;
        std::vector<float> scale;
        for (std::int64_t c = 0; c < channels; ++c) {
          bias.push_back(static_cast<std::int32_t>(c) * 91 - 700);
          scale.push_back(1e-4f * static_cast<float>(1 + c % 5));
        }
        const ProductSums products{Tensor::from(sums, shape).to(layout), Tensor::from(bias, {channels}),
                                   Tensor::from(scale, {channels}), 1};
        const auto grid = Grid::from_amax(IntFormat{8}, {}, Tensor::scalar(1.5));
        const auto q = requantize({products, relu}, grid);
        const auto codes = q.codes.to_vector<std::int8_t>();
        const auto passed = apply_mask(Tensor::full(shape, 1.0), q.mask).to_vector<float>();
        const auto s_y = static_cast<float>(grid.scale.item());
        for (std::size_t i = 0; i < sums.size(); ++i) {
          const std::size_t c = i / 35 % static_cast<std::size_t>(channels);
          const auto a = static_cast<float>(sums[i] + bias[c]);
          const float v = a * scale[c];
          ASSERT_EQ(codes[i], scalar::requantize_code(a, scale[c] / s_y, relu ? 0.0f : -128.0f, 127.0f));
          ASSERT_EQ(passed[i] != 0, (relu ? 0 < v : -1.5f <= v) && v <= 1.5f) << i;
        }
      }
}

TEST(Vectors, WorkOnWholeGroupsOnly) {
  const std::vector<float> x(100, 1.0f);
  std::vector<std::int8_t> codes(100, 77);
  bool nan = false;
  const auto done = cpu::quantize(x.data(), 100, {1.0f, -128, 127, 127, -127}, codes.data(), nullptr, &nan);
  EXPECT_EQ(done % 8, 0);
  EXPECT_LE(done, 100);
  EXPECT_EQ(codes[static_cast<std::size_t>(done)], 77);
  EXPECT_EQ(cpu::quantize(x.data(), 7, {1.0f, -128, 127, 127, -127}, codes.data(), nullptr, &nan), 0);
}

}  // namespace
}  // namespace fq::vector_test
