#include <numeric>

#include "fakequant/core/backend/cuda/engine/columns.h"
#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"

namespace fq::cuda {
namespace {

struct alignas(16) Word16 {
  std::uint32_t v[4];
};

/// Words written with one store.
template <class Word, int count>
struct alignas(sizeof(Word) * count) Run {
  Word v[count];
};

template <class Word>
// Subtracts 128 from each u8 code: flipping the top bit gives the i8 code.
FQ_HD Word shift_codes(Word word) {
  if constexpr (sizeof(Word) == 16) {
    for (auto& four : word.v) four ^= 0x80808080u;
    return word;
  } else {
    return static_cast<Word>(word ^ 0x80u);
  }
}

/// Divides n in place and returns the remainder, for numbers known to be below 2^31.
FQ_HD int take_remainder(const Divisor& by, int& n) {
  const int rest = by.quotient(n), remainder = n - rest * static_cast<int>(by.value);
  n = rest;
  return remainder;
}

/// Converts the number of items to int. Throws ArgumentError if it is too large.
// Sizes below 2^30 keep all index arithmetic in int, which is much faster than 64 bits on a GPU.
int checked(std::int64_t size) {
  if (size >> 30 != 0)
    throw ArgumentError("[cuda] a convolution has 2^30 or more elements along an axis: split it");
  return static_cast<int>(size);
}
template <class Body>
void launch_checked(Device device, std::int64_t items, const Body& body) {
  if (items >> 31 != 0)
    throw ArgumentError("[cuda] a convolution has images of 2^31 or more columns: split it");
  launch_each(device, items, body);
}

/// Taps of windows along one axis of an image.
struct WindowAxis {
  int size, taps, windows, padding, dilation;
  Divisor stride;
  int tap_step, window_step;  // distance of the taps on a pixel, and of their windows

  static WindowAxis of(const ConvShape& c, int axis) {
    const auto a = static_cast<std::size_t>(axis);
    const std::int64_t size = axis == 0 ? c.h : c.w, taps = axis == 0 ? c.kh : c.kw;
    // Tap k of window o reaches pixel o * stride + k * dilation - padding. The next pair on the same pixel is
    // stride / gcd taps and dilation / gcd windows further.
    const std::int64_t windows = axis == 0 ? c.oh : c.ow, both = std::gcd(c.stride[a], c.dilation[a]);
    for (const std::int64_t reach : {windows * c.stride[a], taps * c.dilation[a]})
      static_cast<void>(checked(reach));
    return {checked(size),
            checked(taps),
            checked(windows),
            checked(c.padding[a]),
            checked(c.dilation[a]),
            c.stride[a],
            checked(c.stride[a] / both),
            checked(c.dilation[a] / both)};
  }
  /// Returns the first pixel of a window; negative in the padding.
  [[nodiscard]] FQ_HD int first(int window) const {
    return window * static_cast<int>(stride.value) - padding;
  }
  [[nodiscard]] FQ_HD bool holds(int pixel) const { return pixel >= 0 && pixel < size; }

  struct Tap {
    int tap, window;
  };
  /// Returns the first tap that covers a pixel, and its window. If no tap does, returns `taps`.
  [[nodiscard]] FQ_HD Tap first_tap(int pixel) const {
    // Only taps below tap_step can be first: the others have a smaller one on the same pixel.
    for (int tap = 0; tap < tap_step; ++tap) {
      const int position = pixel + padding - tap * dilation;
      if (position < 0) break;
      const int window = stride.quotient(position);
      if (window * static_cast<int>(stride.value) == position) return {tap, window};
    }
    return {taps, 0};
  }
  /// Calls f(tap, window) for the taps on a pixel in order, beginning with `from`.
  template <class F>
  FQ_HD void visit(const Tap& from, const F& f) const {
    for (int tap = from.tap, window = from.window; tap < taps && window >= 0;
         tap += tap_step, window -= window_step)
      if (window < windows) f(tap, window);
  }
};

/// Sizes in words. A word may hold several elements.
struct Windows {
  WindowAxis down, across;
  Divisor h, w, channels, group_channels, groups, kw, oh, ow, row;

  static Windows of(const ColumnShape& s, std::int64_t elements) {
    const auto& c = s.conv;
    static_cast<void>(checked(s.row));
    if (c.h * c.w >> 31 != 0)
      throw ArgumentError("[cuda] a convolution has images of 2^31 or more pixels: split it");
    return {WindowAxis::of(c, 0),
            WindowAxis::of(c, 1),
            c.h,
            c.w,
            c.c / elements,
            s.group_channels() / elements,
            c.groups,
            c.kw,
            c.oh,
            c.ow,
            s.row / elements};
  }
};

// x: [n, h, w, c], columns: [n, oh, ow, groups, row]. A word has one element or 16 bytes of channels.
/// Copies windows. A thread writes `count` words of a row at once.
template <class Word, int count>
struct TakeWindows {
  Windows s;
  Divisor runs;  // per row
  const Word* x;
  Run<Word, count>* columns;
  bool shifted;

  FQ_HD void operator()(std::int64_t i) const {
    auto at = static_cast<int>(i);
    const int k = take_remainder(runs, at) * count, group = take_remainder(s.groups, at);
    const int ox = take_remainder(s.ow, at), oy = take_remainder(s.oh, at);
    const int top = s.down.first(oy), left = s.across.first(ox);
    const auto group_channels = static_cast<int>(s.group_channels.value), kw = s.across.taps;
    const int tap = s.group_channels.quotient(k);
    int channel = k - tap * group_channels, ky = s.kw.quotient(tap), kx = tap - ky * kw;
    const Word* image = x + at * (s.h.value * s.w.value * s.channels.value) + group * group_channels;
    Run<Word, count> run;
    for (int j = 0; j < count; ++j) {
      const int y = top + ky * s.down.dilation, z = left + kx * s.across.dilation;
      Word word{};
      // Words beyond the last tap are the padding of the row, and stay 0.
      if (ky < s.down.taps && s.down.holds(y) && s.across.holds(z))
        word = image[(y * s.across.size + z) * s.channels.value + channel];
      run.v[j] = shifted ? shift_codes(word) : word;
      if (++channel < group_channels) continue;
      channel = 0;
      if (++kx < kw) continue;
      kx = 0;
      ++ky;
    }
    columns[i] = run;
  }
};

template <class T>
FQ_HD void add_word(T& sum, const T* v) {
  sum += *v;
}
template <class T>
FQ_HD void add_word(loops::Pack<T>& sum, const loops::Pack<T>* v) {
  const auto own = loops::load_pack(v);
  for (int j = 0; j < loops::Pack<T>::count; ++j) sum.v[j] += own.v[j];
}

// col2im, as a gather: a thread adds all columns of its pixel, so no atomics are needed and the order is
// fixed.
template <class Word>
struct AddWindows {
  Windows s;
  const Word* columns;
  Word* dx;

  FQ_HD void operator()(std::int64_t i) const {
    auto at = static_cast<int>(i);
    int group = take_remainder(s.channels, at);
    const int z = take_remainder(s.w, at), y = take_remainder(s.h, at);
    const int channel = take_remainder(s.group_channels, group);
    const auto step = s.groups.value * s.row.value;
    const Word* image = columns + at * (s.oh.value * s.ow.value * step) + group * s.row.value + channel;
    const auto group_channels = static_cast<int>(s.group_channels.value);
    const auto first_kx = s.across.first_tap(z);
    Word sum{};
    s.down.visit(s.down.first_tap(y), [&](int ky, int oy) {
      s.across.visit(first_kx, [&](int kx, int ox) {
        add_word(sum,
                 image + (oy * s.across.windows + ox) * step + (ky * s.across.taps + kx) * group_channels);
      });
    });
    dx[i] = sum;
  }
};

template <class Word, int count>
void take(const ColumnShape& s, std::int64_t elements, const void* x, bool shifted, void* columns,
          Device device) {
  const std::int64_t runs = s.row / (elements * count);
  launch_checked(device, s.conv.n * s.conv.oh * s.conv.ow * s.conv.groups * runs,
                 TakeWindows<Word, count>{Windows::of(s, elements), runs, static_cast<const Word*>(x),
                                          static_cast<Run<Word, count>*>(columns), shifted});
}

template <class Word>
void add(const ColumnShape& s, std::int64_t elements, const void* columns, void* dx, Device device) {
  launch_checked(
      device, numel(s.conv.x_shape()) / elements,
      AddWindows<Word>{Windows::of(s, elements), static_cast<const Word*>(columns), static_cast<Word*>(dx)});
}

bool is_aligned(const void* data, std::int64_t length, int bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && length * bytes % 16 == 0;
}

}  // namespace

void take_windows(const ColumnShape& s, const void* x, int bytes, bool shifted, void* columns,
                  Device device) {
  note_read(x, numel(s.conv.x_shape()) * bytes);
  note_written(columns, s.conv.n * s.image() * bytes);
  // From fastest to slowest: 16 bytes of channels read and written at once, 16 bytes written at once, single
  // words.
  const bool rows = is_aligned(columns, s.row, bytes);
  if (rows && is_aligned(x, s.group_channels(), bytes))
    return take<Word16, 1>(s, 16 / bytes, x, shifted, columns, device);
  visit_word(bytes, [&]<class Word>(Word) {
    rows ? take<Word, 16 / sizeof(Word)>(s, 1, x, shifted, columns, device)
         : take<Word, 1>(s, 1, x, shifted, columns, device);
  });
}

void add_windows(const ColumnShape& s, const void* columns, DType dtype, void* dx, Device device) {
  const auto run = [&]<class T>(T) {
    using Pack = loops::Pack<T>;
    note_read(columns, s.conv.n * s.image() * static_cast<std::int64_t>(sizeof(T)));
    note_written(dx, numel(s.conv.x_shape()) * static_cast<std::int64_t>(sizeof(T)));
    is_aligned(columns, s.row, sizeof(T)) && is_aligned(dx, s.group_channels(), sizeof(T))
        ? add<Pack>(s, Pack::count, columns, dx, device)
        : add<T>(s, 1, columns, dx, device);
  };
  if (dtype == DType::i32) return run(std::int32_t{});
  dtype == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace fq::cuda
