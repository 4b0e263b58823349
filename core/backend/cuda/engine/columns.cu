#include "fakequant/core/backend/cuda/engine/columns.h"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/words.cuh"

namespace fq::cuda {
namespace {

struct alignas(16) Word16 {
  std::uint32_t v[4];
};

template <class Word>
FQ_HD Word shift_codes(Word word) {
  if constexpr (sizeof(Word) == 16) {
    for (auto& four : word.v) four ^= 0x80808080u;
    return word;
  } else {
    return static_cast<Word>(word ^ 0x80u);
  }
}

/// Sizes in words, which may be several elements each.
struct Windows {
  std::int64_t h, w, channels, group_channels, groups, kw, taps, oh, ow, row;
  std::int64_t stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;

  static Windows of(const ColumnShape& s, std::int64_t elements) {
    const auto& c = s.conv;
    return {c.h,
            c.w,
            c.c / elements,
            s.group_channels() / elements,
            c.groups,
            c.kw,
            c.kh * c.kw,
            c.oh,
            c.ow,
            s.row / elements,
            c.stride[0],
            c.stride[1],
            c.padding[0],
            c.padding[1],
            c.dilation[0],
            c.dilation[1]};
  }
};

template <class Word>
struct TakeWindows {
  Windows s;
  const Word* x;
  Word* columns;
  bool shifted;

  FQ_HD void operator()(std::int64_t i) const {
    std::int64_t at = i;
    const std::int64_t k = take_remainder(at, s.row), group = take_remainder(at, s.groups);
    const std::int64_t ox = take_remainder(at, s.ow), oy = take_remainder(at, s.oh);
    const std::int64_t tap = quotient(k, s.group_channels);
    Word word{};
    if (tap < s.taps) {
      const std::int64_t ky = quotient(tap, s.kw), kx = tap - ky * s.kw;
      const std::int64_t y = oy * s.stride_h - s.padding_h + ky * s.dilation_h;
      const std::int64_t z = ox * s.stride_w - s.padding_w + kx * s.dilation_w;
      if (y >= 0 && y < s.h && z >= 0 && z < s.w)
        word = x[((at * s.h + y) * s.w + z) * s.channels + group * s.group_channels +
                 (k - tap * s.group_channels)];
      if (shifted) word = shift_codes(word);
    }
    columns[i] = word;
  }
};

template <class T>
struct AddWindows {
  Windows s;
  const T* columns;
  T* dx;

  /// The window of y, 0 <= o < size, whose tap `k` lies on pixel `p`; -1 for none.
  FQ_HD static std::int64_t window(std::int64_t p, std::int64_t k, std::int64_t padding,
                                   std::int64_t dilation, std::int64_t stride, std::int64_t size) {
    const std::int64_t first = p + padding - k * dilation;
    if (first < 0) return -1;
    const std::int64_t o = quotient(first, stride);
    return o * stride == first && o < size ? o : -1;
  }

  FQ_HD void operator()(std::int64_t i) const {
    std::int64_t at = i;
    const std::int64_t c = take_remainder(at, s.channels), z = take_remainder(at, s.w),
                       y = take_remainder(at, s.h);
    const std::int64_t group = quotient(c, s.group_channels), channel = c - group * s.group_channels;
    T sum{};
    for (std::int64_t tap = 0; tap < s.taps; ++tap) {
      const std::int64_t ky = quotient(tap, s.kw), kx = tap - ky * s.kw;
      const std::int64_t oy = window(y, ky, s.padding_h, s.dilation_h, s.stride_h, s.oh);
      const std::int64_t ox = window(z, kx, s.padding_w, s.dilation_w, s.stride_w, s.ow);
      if (oy < 0 || ox < 0) continue;
      const std::int64_t row = ((at * s.oh + oy) * s.ow + ox) * s.groups + group;
      sum += columns[row * s.row + tap * s.group_channels + channel];
    }
    dx[i] = sum;
  }
};

template <class Word>
void take(const ColumnShape& s, std::int64_t elements, const void* x, bool shifted, void* columns,
          Device device) {
  for_items(device, s.conv.n * s.image() / elements,
            TakeWindows<Word>{Windows::of(s, elements), static_cast<const Word*>(x),
                              static_cast<Word*>(columns), shifted});
}

bool in_sixteens(const ColumnShape& s, int bytes, const void* x, const void* columns) {
  const auto both = reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(columns);
  return both % 16 == 0 && s.group_channels() * bytes % 16 == 0 && s.row * bytes % 16 == 0;
}

}  // namespace

void take_windows(const ColumnShape& s, const void* x, int bytes, bool shifted, void* columns,
                  Device device) {
  if (in_sixteens(s, bytes, x, columns)) return take<Word16>(s, 16 / bytes, x, shifted, columns, device);
  visit_word(bytes, [&]<class Word>(Word) { take<Word>(s, 1, x, shifted, columns, device); });
}

void add_windows(const ColumnShape& s, const void* columns, DType dtype, void* dx, Device device) {
  const std::int64_t count = numel(s.conv.x_shape());
  const auto run = [&]<class T>(T) {
    for_items(device, count,
              AddWindows<T>{Windows::of(s, 1), static_cast<const T*>(columns), static_cast<T*>(dx)});
  };
  if (dtype == DType::i32) return run(std::int32_t{});
  dtype == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace fq::cuda
