#include "fakequant/core/backend/cpu/codes/accumulator_kernels.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/numerics/detail/formulas.h"
#include "vector_patterns.h"

namespace fq::accumulator_kernels_test {
namespace {

/// Counts around whole groups of every instruction set, and the empty one.
constexpr std::int64_t counts[] = {0, 1, 7, 8, 9, 16, 31, 63, 64, 65, 1000, 1025};

constexpr cpu::SumReader readers[] = {{-128, 127, -1.7f, 1.7f, false},
                                      {0, 127, 0, 1.7f, true},
                                      {0, 255, 0, 3.4f, true},
                                      {0, 0, -0x1p-24f, 0x1p-24f, false}};

bool passes(const cpu::SumReader& r, float v) {
  return r.open ? scalar::mask_open_lower(v, r.below, r.amax) : scalar::mask_closed(v, r.below, r.amax);
}

struct Expected {
  float code;
  bool passes;
};

/// Runs a kernel for every instruction set, count, reader and code type; `element(i, reader)` is the truth.
template <class Code, class Run, class Element>
void compare(const cpu::SumReader& reader, Run&& run, Element&& element) {
  run_on_every_target([&](std::int64_t target) {
    for (const std::int64_t count : counts) {
      std::vector<Code> codes(static_cast<std::size_t>(count) + 1, Code{77}), without = codes;
      std::vector<std::uint8_t> mask(static_cast<std::size_t>(count / 8) + 2, 0xa5);
      run(count, reader, cpu::CodesOut{codes.data(), cpp_dtype<Code>, mask.data()});
      run(count, reader, cpu::CodesOut{without.data(), cpp_dtype<Code>, nullptr});
      ASSERT_EQ(codes, without);
      ASSERT_EQ(codes.back(), Code{77});
      ASSERT_EQ(mask[static_cast<std::size_t>((count + 7) / 8)], 0xa5);
      for (std::int64_t i = 0; i < count; ++i) {
        const Expected expected = element(i, reader);
        const auto at = static_cast<std::size_t>(i);
        ASSERT_EQ(codes[at], static_cast<Code>(expected.code)) << i << " of " << count << " on " << target;
        ASSERT_EQ(bit(mask, at), expected.passes) << i << " of " << count << " on " << target;
      }
      for (std::int64_t i = count; i % 8 != 0; ++i) ASSERT_FALSE(bit(mask, static_cast<std::size_t>(i)));
    }
  });
}

template <class Run, class Element>
void compare_all(Run&& run, Element&& element) {
  for (const auto& reader : readers) {
    if (reader.upper <= 127) compare<std::int8_t>(reader, run, element);
    if (reader.lower >= 0) compare<std::uint8_t>(reader, run, element);
    compare<std::int16_t>(reader, run, element);
    compare<std::int32_t>(reader, run, element);
  }
}

/// All codes of a type, in an order of its own.
template <class Code>
std::vector<Code> codes(int step) {
  std::vector<Code> out(1025);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<Code>(static_cast<int>(i) * step + static_cast<int>(i / 256));
  return out;
}

template <class A, class B>
void compare_additions() {
  const auto a = codes<A>(37);
  const auto b = codes<B>(113);
  const cpu::CodeArray left{a.data(), cpp_dtype<A>}, right{b.data(), cpp_dtype<B>};
  for (const float offset : {0.0f, 128.0f}) {
    const float sa = 0.0213f, sb = 0.00471f, sy = 0.0133f, ra = sa / sy, rb = sb / sy;
    const cpu::AdditionGrid g{ra, rb, 128.0f - (ra * offset + rb * 128.0f), offset, 128, 128, sa, sb};
    compare_all(
        [&](std::int64_t count, const cpu::SumReader& reader, const cpu::CodesOut& out) {
          cpu::requantize_addition(left, right, count, g, reader, out);
        },
        [&](std::int64_t i, const cpu::SumReader& reader) {
          const auto x = static_cast<float>(a[static_cast<std::size_t>(i)]);
          const auto y = static_cast<float>(b[static_cast<std::size_t>(i)]);
          return Expected{
              scalar::add_code(x + offset, y + 128.0f, ra, rb, g.fused, 128.0f, reader.lower, reader.upper),
              passes(reader, x * sa + y * sb)};
        });
  }
}

TEST(AccumulatorKernels, AdditionsMatchTheScalarFormulaBitwise) {
  compare_additions<std::int8_t, std::int8_t>();
  compare_additions<std::int8_t, std::uint8_t>();
  compare_additions<std::uint8_t, std::int8_t>();
  compare_additions<std::uint8_t, std::uint8_t>();
}
TEST(AccumulatorKernels, AdditionsOfWiderCodesMatchTheScalarFormula) {
  compare_additions<std::int16_t, std::uint8_t>();
  compare_additions<std::int8_t, std::int32_t>();
}

TEST(AccumulatorKernels, SumsMatchTheScalarFormulaBitwise) {
  std::vector<std::int32_t> sums(1025);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<std::int32_t>(i * 2654435761u);
  for (std::size_t i = 0; i < 700; ++i) sums[i] >>= 18;
  const float scale = 0.0213f / 64.0f, multiplier = 0.0213f / (0.0133f * 64.0f);
  compare_all(
      [&](std::int64_t count, const cpu::SumReader& reader, const cpu::CodesOut& out) {
        cpu::requantize_sums(sums.data(), count, multiplier, scale, reader, out);
      },
      [&](std::int64_t i, const cpu::SumReader& reader) {
        const auto a = static_cast<float>(sums[static_cast<std::size_t>(i)]);
        return Expected{scalar::requantize_code(a, multiplier, reader.lower, reader.upper),
                        passes(reader, scalar::dequantize_code(a, scale))};
      });
}

TEST(AccumulatorKernels, AveragesMatchTheScalarFormulaBitwise) {
  auto values = patterns();
  std::vector<float> x;
  for (std::size_t i = 0; i < 900; ++i) x.push_back(values[i * 1163]);
  x.insert(x.end(), values.end() - 125, values.end());
  for (const float offset : {0.0f, 128.0f})
    compare_all(
        [&](std::int64_t count, const cpu::SumReader& reader, const cpu::CodesOut& out) {
          cpu::requantize_averages(x.data(), count, 0.0133f, offset, reader, out);
        },
        [&](std::int64_t i, const cpu::SumReader& reader) {
          const float v = x[static_cast<std::size_t>(i)];
          return Expected{scalar::average_code(v, 0.0133f, offset, reader.lower, reader.upper),
                          passes(reader, v)};
        });
}

TEST(AccumulatorKernels, ConvertSumsToFloats) {
  std::vector<std::int32_t> sums(1025), bias(1025);
  std::vector<float> scale(1025), shift(1025);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = static_cast<std::int32_t>(i * 2654435761u) / 2;
    bias[i] = static_cast<std::int32_t>(i) * 1000003 - 500000000;
    scale[i] = 1e-4f * static_cast<float>(static_cast<int>(i % 19) - 9);
    shift[i] = 0.37f * static_cast<float>(i % 23) - 4.0f;
  }
  run_on_every_target([&](std::int64_t target) {
    for (const bool innermost : {false, true})
      for (const std::int64_t count : counts) {
        const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(innermost ? i : 0); };
        std::vector<float> a(sums.size(), -7.0f), b = a;
        const auto done =
            cpu::sum_values(sums.data(), count, {bias.data(), scale.data(), nullptr}, innermost, a.data());
        ASSERT_EQ(
            cpu::sum_values(sums.data(), count, {nullptr, scale.data(), shift.data()}, innermost, b.data()),
            done);
        ASSERT_TRUE(done <= count && count - done < 64);
        for (std::int64_t i = 0; i < done; ++i) {
          const auto k = static_cast<std::size_t>(i);
          const auto biased = static_cast<float>(sums[k] + bias[at(i)]);
          ASSERT_EQ(a[k], scalar::dequantize_code(biased, scale[at(i)])) << i << " on " << target;
          ASSERT_EQ(b[k], scalar::normalized_sum(static_cast<float>(sums[k]), scale[at(i)], shift[at(i)]))
              << i << " on " << target;
        }
        ASSERT_TRUE(done == 1025 || a[static_cast<std::size_t>(done)] == -7.0f);
      }
  });
}

TEST(AccumulatorKernels, ConvertAdditionsToFloats) {
  const auto a = codes<std::int8_t>(37);
  const auto b = codes<std::uint8_t>(113);
  run_on_every_target([&](std::int64_t) {
    for (const std::int64_t count : counts) {
      std::vector<float> y(static_cast<std::size_t>(count) + 1, -7.0f);
      cpu::addition_values({a.data(), DType::i8}, {b.data(), DType::u8}, count, 0.1f, 0.3f, y.data());
      for (std::size_t i = 0; i + 1 < y.size(); ++i)
        ASSERT_EQ(y[i], static_cast<float>(a[i]) * 0.1f + static_cast<float>(b[i]) * 0.3f);
      ASSERT_EQ(y.back(), -7.0f);
    }
  });
}

TEST(AccumulatorKernels, ReluTurnsNaNAndNegativeZeroToZero) {
  const auto x = patterns();
  run_on_every_target([&](std::int64_t target) {
    for (const std::int64_t rest : {0, 1, 13}) {
      auto v = x;
      std::vector<std::uint8_t> mask(x.size() / 8 + 1);
      const auto count = static_cast<std::int64_t>(x.size()) - rest;
      cpu::relu(v.data(), count, mask.data());
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        ASSERT_TRUE(same_number(v[i], scalar::max_(x[i], 0.0f))) << x[i] << " on " << target;
        ASSERT_EQ(bit(mask, i), x[i] > 0.0f) << x[i] << " on " << target;
      }
    }
  });
}

}  // namespace
}  // namespace fq::accumulator_kernels_test
