#include "fakequant/reference/kernels/cpu/fake_quant_kernels.h"

#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/detail/broadcast.h"
#include "fakequant/reference/kernels/kernels.h"
#include "vector_patterns.h"

namespace fq::fake_quant_kernels_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Expected {
  float y;
  bool mask;
};
/// Formula of an element, its range, and the bound of the mask.
using Formula = std::function<Expected(float, float, float)>;
using Kernel = std::function<void(const Tensor& x, const Tensor& amax, Tensor& y, Tensor* mask)>;

/// On every target, the kernel's values and mask equal the formula.
void compare(const Tensor& x, const Tensor& amax, const Formula& formula, const Kernel& kernel) {
  const auto in = x.to(DType::f32).to_vector<float>();
  std::vector<float> rounded(in.size());
  std::vector<bool> passes(in.size());
  const float* ranges = amax.data<float>();
  detail::visit_broadcast(x.shape(), amax.shape(), "test", [&](auto begin, auto end, auto j) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const Expected e = formula(in[i], ranges[j], ranges[j]);
      rounded[i] = e.y;
      passes[i] = e.mask;
    }
  });
  const auto expected = Tensor::from(rounded, x.shape()).to(x.dtype()).to(DType::f32).to_vector<float>();
  run_on_every_target([&](std::int64_t target) {
    Tensor y = Tensor::zeros(x.shape(), x.dtype(), Device::cpu(), x.layout());
    Tensor mask = Tensor::empty(x.shape(), DType::u1, Device::cpu(), x.layout());
    kernel(x, amax, y, &mask);
    const Tensor bits = mask.to(Layout::row_major);
    Tensor unmasked = Tensor::zeros(x.shape(), x.dtype(), Device::cpu(), x.layout());
    kernel(x, amax, unmasked, nullptr);
    for (const Tensor& found : {y, unmasked})
      expect_same(in, found.to(DType::f32).to_vector<float>(), static_cast<const std::uint8_t*>(bits.raw()),
                  expected, passes, fmt::format("{} on {}", x.describe(), target));
  });
}

Formula integer_formula(const IntFormat& format, bool guard) {
  return [=](float x, float amax, float bound) -> Expected {
    const auto lower = static_cast<float>(format.lower()), upper = static_cast<float>(format.upper());
    const float scale = scalar::modelopt_scale(amax, upper, guard);
    const float divisor = scalar::modelopt_divisor(amax, scale, guard);
    return {scalar::modelopt_fake_quant(x, scale, divisor, lower, upper), scalar::modelopt_mask(x, bound)};
  };
}
Kernel integer_kernel(const IntFormat& format) {
  return [=](const Tensor& x, const Tensor& amax, Tensor& y, Tensor* mask) {
    cpu::fake_quant_integer(x, amax, amax, format, y, mask);
  };
}
void compare_integer(const Tensor& x, const Tensor& amax, const IntFormat& format) {
  const auto ranges = amax.to_vector<float>();
  const bool guard = std::ranges::none_of(ranges, [](float a) { return a != a; });
  compare(x, amax, integer_formula(format, guard), integer_kernel(format));
}

Expected e4m3_formula(float x, float amax, float bound) {
  const float scale = scalar::modelopt_e4m3_scale(amax);
  return {scalar::round_e4m3(x * scale) * (1.0f / scale), scalar::modelopt_mask(x, bound)};
}
void e4m3_kernel(const Tensor& x, const Tensor& amax, Tensor& y, Tensor* mask) {
  cpu::fake_quant_e4m3(x, amax, amax, y, mask);
}

Tensor floats() {
  const auto values = patterns();
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
/// Every bit pattern of a 16-bit type.
Tensor every(DType dtype) {
  Tensor out = Tensor::empty({65536}, dtype);
  auto* words = static_cast<std::uint16_t*>(out.mutable_raw());
  for (std::size_t i = 0; i < 65536; ++i) words[i] = static_cast<std::uint16_t>(i);
  return out;
}
const std::vector<float>& ranges() {
  static const std::vector<float> values{0.3f,    127.0f, 0x1p-24f, 0x1.000002p-24f, 0.0f, 3e34f,
                                         3.4e38f, kInf,   kNaN};
  return values;
}

TEST(FakeQuantKernels, IntegersMatchTheFormulaBitwise) {
  const IntFormat formats[] = {{8, false, true}, {8, true, true}, {4, false, false}, {16, false, false}};
  compare_integer(floats(), Tensor::scalar(1.7), formats[0]);
  compare_integer(floats(), Tensor::scalar(1e30), formats[2]);
  for (const IntFormat& format : formats)
    for (const float amax : ranges())
      for (const DType dtype : {DType::f16, DType::bf16})
        compare_integer(every(dtype), Tensor::scalar(static_cast<double>(amax)), format);
}

TEST(FakeQuantKernels, E4m3MatchesTheFormulaBitwise) {
  compare(floats(), Tensor::scalar(1.7), e4m3_formula, e4m3_kernel);
  compare(floats(), Tensor::scalar(448), e4m3_formula, e4m3_kernel);
  for (const float amax : ranges())
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const float sign : {1.0f, -1.0f})
        compare(every(dtype), Tensor::scalar(static_cast<double>(sign * amax)), e4m3_formula, e4m3_kernel);
  const auto cast = [](float x, float, float) -> Expected { return {scalar::round_e4m3(x), x == x}; };
  compare(floats(), Tensor::scalar(1), cast, [](const Tensor& x, const Tensor&, Tensor& y, Tensor* mask) {
    cpu::fake_quant_e4m3(x, {}, {}, y, mask);
  });
}

TEST(FakeQuantKernels, IntegerCastMatchesTheFormulaBitwise) {
  for (const IntFormat& format : {IntFormat{8, false, true}, IntFormat{4, true, false}}) {
    const auto lower = static_cast<float>(format.lower()), upper = static_cast<float>(format.upper());
    const auto formula = [=](float x, float, float) -> Expected {
      return {scalar::modelopt_int_cast(x, lower, upper), scalar::mask_closed(x, lower, upper)};
    };
    const auto kernel = [=](const Tensor& x, const Tensor&, Tensor& y, Tensor* mask) {
      cpu::round_to_integers(x, lower, upper, y, mask);
    };
    for (const Tensor& x : {floats(), every(DType::f16), every(DType::bf16)})
      compare(x, Tensor::scalar(1), formula, kernel);
  }
}

Tensor waves(const Shape& shape, DType dtype, Layout layout) {
  std::vector<float> x(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 2.0f * std::sin(static_cast<float>(i) * 0.7f);
  return Tensor::from(x, shape).to(layout).to(dtype);
}
Tensor different(const Shape& shape) {
  std::vector<float> a(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = 0.5f + 0.37f * static_cast<float>(i % 11);
  return Tensor::from(a, shape);
}

TEST(FakeQuantKernels, AcceptRangesOfEveryShape) {
  const std::pair<Shape, Shape> shapes[] = {{{}, {}},
                                            {{1}, {1}},
                                            {{7}, {1}},
                                            {{7}, {7}},
                                            {{3, 5, 7}, {7}},
                                            {{3, 5, 7}, {5, 1}},
                                            {{3, 5, 7}, {3, 1, 1}},
                                            {{3, 5, 7}, {3, 1, 7}},
                                            {{3, 5, 7}, {3, 5, 7}},
                                            {{3, 5, 7}, {1, 1, 1}},
                                            {{6, 1024}, {6, 1}},
                                            {{6, 1000}, {6, 1}},
                                            {{6, 1001}, {6, 1}},
                                            {{5, 2048}, {2048}},
                                            {{50, 520}, {520}},
                                            {{70, 128}, {70, 1}},
                                            {{2, 70, 16}, {70, 1}},
                                            {{2, 3, 40}, {2, 1, 1}},
                                            {{300, 513}, {513}},
                                            {{3, 40000}, {3, 1}},
                                            {{40, 48, 50}, {48, 1}},
                                            {{2, 40000, 3}, {40000, 1}},
                                            {{2, 50000}, {50000}},
                                            {{9, 4, 1024}, {4, 1024}},
                                            {{4, 9, 1024}, {4, 1, 1024}},
                                            {{70, 1024}, {1024}},
                                            {{1, 1, 33}, {33}},
                                            {{33, 1}, {33, 1}},
                                            {{100001}, {1}}};
  for (const auto& [shape, range] : shapes)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = waves(shape, dtype, Layout::row_major);
      compare_integer(x, different(range), {8, false, true});
      compare(x, different(range), e4m3_formula, e4m3_kernel);
    }
  for (const Shape& range : {Shape{3, 1, 1}, Shape{2, 1, 1, 1}, Shape{5}, Shape{2, 3, 8, 5}, Shape{}})
    compare_integer(waves({2, 3, 8, 5}, DType::f32, Layout::channels_last), different(range),
                    {8, false, true});
  compare_integer(waves({2, 640, 3, 5}, DType::f32, Layout::channels_last), different({640, 1, 1}), {8});
  EXPECT_THROW(compare_integer(waves({2, 3}, DType::f32, Layout::row_major), different({2}), {8}),
               ArgumentError);
}

TEST(FakeQuantKernels, AcceptUnalignedAndLargeRuns) {
  constexpr std::int64_t most = 200;
  std::vector<float> x(most + 16), y(most + 16), padded_range(64, 1.3f);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.011f * static_cast<float>(i) - 1.1f;
  std::vector<float> scale(64), divisor(64), inverse(64);
  run_on_every_target([&](std::int64_t) {
    const bool divide = cpu::integer_rows(padded_range.data(), cpu::vector_group(), 127, true, scale.data(),
                                          divisor.data(), inverse.data());
    const cpu::IntegerRows rows{
        {scale.data(), divisor.data(), inverse.data(), padded_range.data()}, -127, 127, divide};
    for (std::size_t offset = 0; offset < 16; ++offset)
      for (std::int64_t count = 0; count <= most; count += 7)
        for (const bool beyond : {false, true}) {
          std::fill(y.begin(), y.end(), 77.0f);
          std::vector<std::uint8_t> mask(most / 8 + 2, 0xee);
          cpu::fake_quant(
              {x.data() + offset, y.data() + offset, mask.data(), count, count, DType::f32, beyond}, rows);
          for (std::int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<std::size_t>(i) + offset;
            const Expected e = integer_formula({8, false, true}, true)(x[at], 1.3f, 1.3f);
            ASSERT_EQ(y[at], e.y);
            ASSERT_EQ(bit(mask, static_cast<std::size_t>(i)), e.mask);
          }
          for (std::size_t i = static_cast<std::size_t>(count); i % 8 != 0; ++i) ASSERT_FALSE(bit(mask, i));
          ASSERT_EQ(mask[static_cast<std::size_t>(count + 7) / 8], 0xee);
          ASSERT_EQ(y[offset + static_cast<std::size_t>(count)], 77.0f);
        }
  });
}

/// Every code of 8 bits, signed or not, over every significand of the divisor: the quotient without division.
TEST(FakeQuantKernels, QuotientsAreExact) {
  constexpr std::int64_t length = 4096;
  std::vector<float> code(length), one(length, 1.0f), divisor(length), inverse(length), exact(length),
      got(length);
  for (std::uint32_t bits = 0x3f800000u; bits < 0x40000000u; bits += length) {
    for (std::uint32_t i = 0; i < length; ++i) {
      divisor[i] = std::bit_cast<float>(bits + i);
      inverse[i] = 1.0f / divisor[i];
    }
    for (int q = 1; q < 256; q += 2) {
      std::fill(code.begin(), code.end(), static_cast<float>(q));
      const cpu::Columns columns{one.data(), divisor.data(), inverse.data(), one.data()};
      cpu::Stretch stretch{code.data(), exact.data(), nullptr, length, 0, DType::f32, false};
      cpu::fake_quant(stretch, cpu::IntegerRows{columns, -255, 255, true});
      stretch.y = got.data();
      cpu::fake_quant(stretch, cpu::IntegerRows{columns, -255, 255, false});
      ASSERT_EQ(got, exact) << q << " over " << divisor[0];
    }
  }
}

TEST(FakeQuantKernels, PassGradientsThroughTheMask) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const std::int64_t count : {0, 1, 7, 8, 9, 31, 64, 129, 100003}) {
      const Tensor dy = waves({count}, dtype, Layout::row_major);
      Tensor mask = Tensor::zeros({count}, DType::u1);
      auto* bytes = static_cast<std::uint8_t*>(mask.mutable_raw());
      for (std::int64_t i = 0; i < mask.nbytes(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37 + 11);
      run_on_every_target([&](std::int64_t target) {
        const auto dx = apply_mask(dy, mask).to(DType::f64).to_vector<double>();
        const auto in = dy.to(DType::f64).to_vector<double>();
        for (std::size_t i = 0; i < in.size(); ++i)
          ASSERT_EQ(dx[i], ((bytes[i / 8] >> (i % 8)) & 1) != 0 ? in[i] : 0.0) << i << " on " << target;
      });
    }
  EXPECT_THROW((void)apply_mask(Tensor::zeros({3}, DType::i32), Tensor::zeros({3}, DType::u1)),
               ArgumentError);
}

}  // namespace
}  // namespace fq::fake_quant_kernels_test
