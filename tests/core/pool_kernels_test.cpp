#include <random>

#include "fakequant/core/backend/kernel_columns.h"
#include "vector_patterns.h"

namespace fq::pool_kernels_test {
namespace {

using detail::PoolSizes;

/// Windows side by side, overlapping, cut by the edge, with gaps between them, and of a whole image.
constexpr PoolSizes windows[] = {{2, 1, 8, 6, 2, 2, 2, 2, 0, 0, 4, 3},
                                 {1, 1, 7, 6, 3, 3, 2, 2, 1, 1, 4, 3},
                                 {2, 1, 5, 5, 3, 2, 1, 1, 1, 0, 5, 4},
                                 {1, 1, 9, 9, 2, 1, 3, 4, 0, 0, 3, 3},
                                 {2, 1, 4, 3, 4, 3, 1, 1, 0, 0, 1, 1}};
constexpr std::int64_t channel_counts[] = {1, 3, 4, 15, 16, 20, 64, 67};

template <class F>
void run_all_sizes(F&& f) {
  for (PoolSizes s : windows)
    for (const std::int64_t c : channel_counts) {
      s.c = c;
      s.eh = s.ph;
      s.ew = s.pw;
      run_on_every_target([&](std::int64_t) { f(s); });
    }
}

Shape input(const PoolSizes& s) { return {s.n, s.c, s.h, s.w}; }
Shape output(const PoolSizes& s) { return {s.n, s.c, s.oh, s.ow}; }

/// Few different values, so that there are equal ones, and both ends of the type.
template <class T>
Tensor values(const Shape& shape, bool with_nan) {
  std::mt19937 random(5);
  std::vector<T> out(static_cast<std::size_t>(numel(shape)));
  using Limits = std::numeric_limits<T>;
  for (T& v : out) {
    const auto r = random() % 40;
    v = r == 0 ? Limits::max() : r == 1 ? Limits::lowest() : static_cast<T>(static_cast<int>(r) - 20);
    if (with_nan && r == 2) v = Limits::quiet_NaN();
  }
  return Tensor::from(out, shape).to(Layout::channels_last);
}
template <class T>
Tensor empty(const Shape& shape) {
  return Tensor::empty(shape, cpp_dtype<T>, Device::cpu(), Layout::channels_last);
}

/// Calls f(position in the window, index of the input) for the pixels of a window that are inside the image.
template <class F>
void each_pixel(const PoolSizes& s, std::int64_t n, std::int64_t c, std::int64_t i, std::int64_t j, F&& f) {
  for (std::int64_t u = 0; u < s.kh; ++u)
    for (std::int64_t v = 0; v < s.kw; ++v) {
      const std::int64_t h = i * s.sh - s.ph + u, w = j * s.sw - s.pw + v;
      if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
      f(u * s.kw + v, ((n * s.h + h) * s.w + w) * s.c + c);
    }
}
/// f(index of the output, n, c, i, j)
template <class F>
void each_window(const PoolSizes& s, F&& f) {
  for (std::int64_t n = 0, at = 0; n < s.n; ++n)
    for (std::int64_t i = 0; i < s.oh; ++i)
      for (std::int64_t j = 0; j < s.ow; ++j)
        for (std::int64_t c = 0; c < s.c; ++c) f(at++, n, c, i, j);
}

template <class T>
void compare_max(const PoolSizes& s, DType places) {
  const Tensor x = values<T>(input(s), std::is_floating_point_v<T>);
  Tensor y = empty<T>(output(s)), alone = empty<T>(output(s));
  Tensor argmax = Tensor::empty(output(s), places, Device::cpu(), Layout::channels_last);
  cpu::max_pool(x, s, y, &argmax, {});
  cpu::max_pool(x, s, alone, nullptr, {});
  ASSERT_TRUE(bitwise_equal(y, alone));
  const auto* in = x.data<T>(Layout::channels_last);
  const auto* out = y.data<T>(Layout::channels_last);
  const Tensor wide = argmax.to(DType::i32);
  each_window(s, [&](std::int64_t at, auto... window) {
    T best{};
    std::int64_t place = -1;
    each_pixel(s, window..., [&](std::int64_t k, std::int64_t from) {
      if (place >= 0 && !(in[from] > best) && in[from] == in[from]) return;
      best = in[from];
      place = k;
    });
    ASSERT_TRUE(out[at] == best || best != best) << at;
    ASSERT_EQ(wide.data<std::int32_t>(Layout::channels_last)[at], place) << at << " of " << name(x.dtype());
  });
}

TEST(PoolKernels, MaxPoolMatchesPlainLoopsBitwise) {
  run_all_sizes([](const PoolSizes& s) {
    compare_max<float>(s, DType::u8);
    compare_max<double>(s, DType::u8);
    compare_max<std::int8_t>(s, DType::u8);
    compare_max<std::uint8_t>(s, DType::u8);
    compare_max<std::int16_t>(s, DType::u8);
    compare_max<std::int32_t>(s, DType::u8);
  });
}

TEST(PoolKernels, LargeWindowsUseWideIndices) {
  const PoolSizes s{1, 20, 17, 16, 17, 16, 1, 1, 0, 0, 1, 1};
  ASSERT_GT(s.window(), detail::byte_places);
  run_on_every_target([&](std::int64_t) {
    compare_max<float>(s, DType::i32);
    compare_max<double>(s, DType::i32);
    compare_max<std::int8_t>(s, DType::i32);
    compare_max<std::int32_t>(s, DType::i32);
  });
}

TEST(PoolKernels, FlippedChannelsPoolTheSmallest) {
  run_all_sizes([](const PoolSizes& s) {
    const Tensor x = values<std::int32_t>(input(s), false);
    std::vector<float> factor;
    for (std::int64_t c = 0; c < s.c; ++c) factor.push_back(c % 3 == 1 ? -0.5f : 2.0f);
    Tensor y = empty<std::int32_t>(output(s)), argmax = empty<std::uint8_t>(output(s));
    cpu::max_pool(x, s, y, &argmax, Tensor::from(factor, {s.c}));
    const auto* in = x.data<std::int32_t>(Layout::channels_last);
    each_window(s, [&](std::int64_t at, std::int64_t n, std::int64_t c, auto... ij) {
      std::int64_t place = -1;
      std::int32_t best = 0;
      each_pixel(s, n, c, ij..., [&](std::int64_t k, std::int64_t from) {
        if (place >= 0 && (c % 3 == 1 ? in[from] >= best : in[from] <= best)) return;
        best = in[from];
        place = k;
      });
      ASSERT_EQ(y.data<std::int32_t>(Layout::channels_last)[at], best) << at;
      ASSERT_EQ(argmax.data<std::uint8_t>(Layout::channels_last)[at], place) << at;
    });
  });
}

template <class T>
void compare_max_backward(const PoolSizes& s, DType places) {
  const Tensor x = values<T>(input(s), false), dy = values<float>(output(s), false).to(cpp_dtype<T>);
  Tensor y = empty<T>(output(s)), dx = empty<T>(input(s));
  Tensor argmax = Tensor::empty(output(s), places, Device::cpu(), Layout::channels_last);
  cpu::max_pool(x, s, y, &argmax, {});
  cpu::max_pool_backward(dy, argmax, s, dx);
  const Tensor wide = argmax.to(DType::i32);
  std::vector<T> expected(static_cast<std::size_t>(dx.numel()));
  each_window(s, [&](std::int64_t at, auto... window) {
    each_pixel(s, window..., [&](std::int64_t k, std::int64_t from) {
      if (wide.data<std::int32_t>(Layout::channels_last)[at] == k)
        expected[static_cast<std::size_t>(from)] += dy.data<T>(Layout::channels_last)[at];
    });
  });
  const auto* got = dx.data<T>(Layout::channels_last);
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(got[i], expected[i]) << i;
}

TEST(PoolKernels, MaxPoolGradientsGoToTheMaxima) {
  run_all_sizes([](const PoolSizes& s) {
    compare_max_backward<float>(s, DType::u8);
    compare_max_backward<double>(s, DType::u8);
    compare_max_backward<float>(s, DType::i32);
    compare_max_backward<double>(s, DType::i32);
  });
}

/// `value(code or float)` is the summed value.
template <class In, class T, class F>
void compare_average(const PoolSizes& s, bool padded, float scale, F&& value) {
  const Tensor x = Tensor::from(
                       [&] {
                         std::vector<In> v(static_cast<std::size_t>(numel(input(s))));
                         for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<In>(i * 37 % 251);
                         return v;
                       }(),
                       input(s))
                       .to(Layout::channels_last);
  Tensor y = empty<T>(output(s));
  cpu::avg_pool(x, s, padded, Tensor::from({scale}), y);
  each_window(s, [&](std::int64_t at, auto... window) {
    T sum{};
    std::int64_t pixels = 0;
    each_pixel(s, window..., [&](std::int64_t, std::int64_t from) {
      sum += value(x.data<In>(Layout::channels_last)[from]);
      ++pixels;
    });
    ASSERT_EQ(y.data<T>(Layout::channels_last)[at], sum / static_cast<T>(padded ? s.window() : pixels)) << at;
  });
}

TEST(PoolKernels, AveragesMatchPlainLoopsBitwise) {
  const auto same = [](auto v) { return v; };
  const auto scaled = [](auto code) { return static_cast<float>(code) * 0.0123f; };
  run_all_sizes([&](const PoolSizes& s) {
    for (const bool padded : {false, true}) {
      compare_average<float, float>(s, padded, 1.0f, same);
      compare_average<double, double>(s, padded, 1.0f, same);
      compare_average<std::int8_t, float>(s, padded, 0.0123f, scaled);
      compare_average<std::uint8_t, float>(s, padded, 0.0123f, scaled);
    }
  });
}

template <class T>
void compare_average_backward(const PoolSizes& s, bool padded) {
  const Tensor dy = values<float>(output(s), false).to(cpp_dtype<T>);
  Tensor dx = empty<T>(input(s));
  cpu::avg_pool_backward(dy, s, padded, dx);
  std::vector<T> expected(static_cast<std::size_t>(dx.numel()));
  each_window(s, [&](std::int64_t at, auto... window) {
    std::int64_t pixels = 0;
    each_pixel(s, window..., [&](auto...) { ++pixels; });
    const T share = T{1} / static_cast<T>(padded ? s.window() : pixels);
    each_pixel(s, window..., [&](std::int64_t, std::int64_t from) {
      expected[static_cast<std::size_t>(from)] += dy.data<T>(Layout::channels_last)[at] * share;
    });
  });
  const auto* got = dx.data<T>(Layout::channels_last);
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(got[i], expected[i]) << i;
}

TEST(PoolKernels, AverageGradientsAreSpreadEvenly) {
  run_all_sizes([](const PoolSizes& s) {
    for (const bool padded : {false, true}) {
      compare_average_backward<float>(s, padded);
      compare_average_backward<double>(s, padded);
    }
  });
}

template <class T>
void compare_sums(std::int64_t channels) {
  const Tensor x = values<T>({3, channels, 5, 7}, false);
  Tensor sums = empty<std::int32_t>({3, channels, 1, 1});
  cpu::sum_pixels(x, sums);
  const auto codes = x.to_vector<T>();
  const auto got = sums.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::int64_t sum = 0;
    for (std::size_t p = 0; p < 35; ++p) sum += codes[i * 35 + p];
    ASSERT_EQ(got[i], static_cast<std::int32_t>(sum)) << i;
  }
}

TEST(PoolKernels, PixelSumsAreExact) {
  run_on_every_target([](std::int64_t) {
    for (const std::int64_t channels : channel_counts) {
      compare_sums<std::int8_t>(channels);
      compare_sums<std::uint8_t>(channels);
      compare_sums<std::int16_t>(channels);
    }
  });
}

}  // namespace
}  // namespace fq::pool_kernels_test
