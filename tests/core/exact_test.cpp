#include "fakequant/core/backend/cpu/engine/exact.h"

#include <gtest/gtest.h>

#include "fakequant/core/backend/cpu/engine/integer_products.h"
#include "fakequant/core/backend/cpu/engine/loops.h"
#include "fakequant/core/tensor.h"

namespace fq::exact_test {
namespace {

using cpu::ConvShape;
using cpu::ExactType;

constexpr std::array kLengths{518, 519, 1040, 1041, 4608};

/// Calls `f` with each engine that this machine can run forced.
template <class F>
void run_all_engines(F&& f) {
  for (const auto type : {ExactType::s8, ExactType::bf16, ExactType::f32}) {
    if (!cpu::exact_type_works(type)) continue;
    SCOPED_TRACE(cpu::name(type));
    const cpu::ForceExactType only(type);
    f();
  }
}

enum class Fill { highest, lowest, alternating, mixed };
constexpr std::array kFills{Fill::highest, Fill::lowest, Fill::alternating, Fill::mixed};

template <class T>
Tensor extreme(Shape shape, Fill fill) {
  std::vector<T> codes(static_cast<std::size_t>(numel(shape)));
  constexpr T low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  for (std::size_t i = 0; i < codes.size(); ++i) {
    switch (fill) {
      case Fill::highest:
        codes[i] = high;
        break;
      case Fill::lowest:
        codes[i] = std::is_unsigned_v<T> ? high : low;
        break;
      case Fill::alternating:
        codes[i] = i % 2 == 0 ? high : low;
        break;
      case Fill::mixed:
        codes[i] = static_cast<T>((i * 2654435761u) >> 23);
        break;
    }
  }
  return Tensor::from(codes, std::move(shape));
}

template <class T>
cpu::Codes view(const Tensor& codes) {
  return {codes.raw(), codes.dtype(), std::is_unsigned_v<T> ? 255 : 128};
}

using Sums = std::vector<std::int32_t>;

template <class X>
void expect_exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, Fill x_fill, Fill w_fill) {
  const Tensor x = extreme<X>({m, k}, x_fill), w = extreme<std::int8_t>({n, k}, w_fill);
  Sums sums(static_cast<std::size_t>(m * n)), right(sums);
  cpu::exact_gemm(m, n, k, view<X>(x), view<std::int8_t>(w), sums.data());
  cpu::reference_gemm<std::int64_t>(m, n, k, x.data<X>(), false, w.data<std::int8_t>(), true, right.data());
  EXPECT_EQ(sums, right) << "k " << k;
}

TEST(Exact, MultipliesMatricesOfExtremeCodes) {
  run_all_engines([] {
    for (const int k : kLengths)
      for (const Fill x : kFills)
        for (const Fill w : kFills) {
          expect_exact_gemm<std::int8_t>(5, 9, k, x, w);
          expect_exact_gemm<std::uint8_t>(5, 9, k, x, w);
        }
    expect_exact_gemm<std::int8_t>(1, 1, 1, Fill::lowest, Fill::lowest);
    expect_exact_gemm<std::uint8_t>(300, 200, 700, Fill::mixed, Fill::mixed);
  });
}

template <class X>
void expect_exact_conv(const ConvShape& s, Fill x_fill, Fill w_fill) {
  const Tensor x = extreme<X>(s.x_shape(), x_fill), w = extreme<std::int8_t>(s.w_shape(), w_fill);
  Sums sums(static_cast<std::size_t>(numel(s.y_shape()))), right(sums);
  cpu::exact_conv(s, view<X>(x), view<std::int8_t>(w), sums.data());
  cpu::reference_conv_forward<std::int64_t>(s, x.data<X>(), w.data<std::int8_t>(), right.data());
  EXPECT_EQ(sums, right) << to_string(s.w_shape()) << " of " << to_string(s.x_shape());
}

template <class X>
void expect_exact_conv_transpose(const ConvShape& s, Fill x_fill, Fill w_fill) {
  const Tensor x = extreme<X>(s.y_shape(), x_fill), w = extreme<std::int8_t>(s.w_shape(), w_fill);
  Sums sums(static_cast<std::size_t>(numel(s.x_shape())));
  std::vector<std::int64_t> right(sums.size());
  cpu::exact_conv_transpose(s, view<X>(x), view<std::int8_t>(w), sums.data());
  cpu::reference_conv_backward_data(s, x.data<X>(), w.data<std::int8_t>(), right.data());
  EXPECT_EQ(std::vector<std::int64_t>(sums.begin(), sums.end()), right) << to_string(s.w_shape());
}

/// Reductions of every length of the list, in channels alone, in channels times taps, and in groups.
const std::vector<ConvShape> kConvolutions{
    {1, 518, 2, 2, 3, 1, 1, 2, 2},
    {1, 519, 2, 2, 8, 1, 1, 2, 2},
    {2, 1040, 2, 2, 3, 1, 1, 2, 2},
    {1, 1041, 2, 1, 16, 1, 1, 2, 1},
    {1, 74, 9, 1, 8, 7, 1, 3, 1},
    {1, 173, 3, 5, 5, 3, 1, 3, 5, {1, 1}, {1, 0}},
    {1, 104, 5, 6, 8, 5, 2, 3, 3, {1, 2}, {1, 0}},
    {1, 347, 3, 4, 4, 1, 3, 3, 4, {1, 1}, {0, 1}},
    {2, 512, 5, 5, 8, 3, 3, 5, 5, {1, 1}, {1, 1}},
    {1, 1024, 4, 4, 4, 3, 3, 2, 2, {2, 2}, {1, 1}, {1, 1}, 2},
    {1, 24, 5, 5, 24, 3, 3, 5, 5, {1, 1}, {1, 1}, {1, 1}, 24},
    {1, 3, 32, 16, 4, 16, 16, 2, 1, {16, 16}},
    {1, 15, 8, 8, 4, 6, 6, 3, 3},
    {1, 16, 8, 8, 4, 6, 6, 3, 3},
    {1, 2, 34, 34, 2, 33, 33, 2, 2},  // 1089 taps: the kernel itself is split
};

template <class X, class W>
void expect_exact_patches(const ConvShape& s, Fill x_fill, Fill w_fill) {
  const Tensor x = extreme<X>(s.x_shape(), x_fill), w = extreme<W>(s.w_shape(), w_fill);
  Sums sums(static_cast<std::size_t>(numel(s.y_shape())), -1), right(sums);
  cpu::convolve_patches(s, view<X>(x), view<W>(w), sums.data());
  cpu::reference_conv_forward<std::int64_t>(s, x.data<X>(), w.data<W>(), right.data());
  EXPECT_EQ(sums, right) << to_string(s.w_shape()) << " of " << to_string(s.x_shape());
}

TEST(Exact, ConvolvesByPatches) {
  for (const auto& s : kConvolutions) {
    expect_exact_patches<std::int8_t, std::int8_t>(s, Fill::mixed, Fill::alternating);
    expect_exact_patches<std::uint8_t, std::int8_t>(s, Fill::highest, Fill::lowest);
  }
  // Several parts, each with pixels of several images, with a dilated and strided filter.
  const ConvShape parts{3, 24, 40, 37, 6, 3, 3, 19, 18, {2, 2}, {1, 1}, {2, 2}, 2};
  expect_exact_patches<std::uint8_t, std::int8_t>(parts, Fill::mixed, Fill::mixed);
  expect_exact_patches<std::int8_t, std::uint8_t>(parts, Fill::lowest, Fill::mixed);
  expect_exact_patches<std::uint8_t, std::int8_t>({0, 4, 3, 3, 2, 1, 1, 3, 3}, Fill::mixed, Fill::mixed);
}

TEST(Exact, ConvolvesExtremeCodes) {
  run_all_engines([] {
    for (const auto& s : kConvolutions)
      for (const auto& [x, w] : {std::pair{Fill::highest, Fill::highest},
                                 {Fill::lowest, Fill::lowest},
                                 {Fill::highest, Fill::lowest},
                                 {Fill::mixed, Fill::alternating}}) {
        expect_exact_conv<std::int8_t>(s, x, w);
        expect_exact_conv<std::uint8_t>(s, x, w);
      }
  });
}

TEST(Exact, ConvolvesTransposedExtremeCodes) {
  run_all_engines([] {
    for (const int k : kLengths) {
      expect_exact_conv_transpose<std::int8_t>({1, 3, 3, 3, k, 2, 2, 2, 2}, Fill::lowest, Fill::lowest);
      expect_exact_conv_transpose<std::uint8_t>({1, 4, 4, 4, 2 * k, 3, 3, 2, 2, {2, 2}, {1, 1}, {1, 1}, 2},
                                                Fill::mixed, Fill::highest);
    }
    expect_exact_conv_transpose<std::uint8_t>({1, 2, 34, 34, 2, 33, 33, 2, 2}, Fill::highest, Fill::lowest);
  });
}

TEST(Exact, PartsStayWithin24Bits) {
  for (const std::int64_t largest : {1, 127 * 127, 255 * 128})
    for (const std::int64_t taps : {1, 9, 5000}) {
      std::int64_t covered = 0;
      for (const auto& part : cpu::exact_parts(700, taps, largest)) {
        covered += (part.c1 - part.c0) * (part.p1 - part.p0);
        EXPECT_LE((part.c1 - part.c0) * (part.p1 - part.p0) * largest, std::int64_t{1} << 24);
      }
      EXPECT_EQ(covered, 700 * taps);
    }
}

TEST(Exact, SelectsAWorkingType) {
  EXPECT_TRUE(cpu::exact_type_works(cpu::best_exact_type()));
  EXPECT_TRUE(cpu::exact_type_works(ExactType::f32));
}

}  // namespace
}  // namespace fq::exact_test
