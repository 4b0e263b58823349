#include "fakequant/core/backend/cuda/engine/columns.h"
#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
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

/// Sizes in words, which may be several elements each. Places in an image and in a window are ints.
struct Windows {
  Divisor h, w, channels, group_channels, groups, kw, oh, ow, row, stride_h, stride_w;
  int kh, padding_h, padding_w, dilation_h, dilation_w;

  static int checked(std::int64_t size) {
    if (size >> 30 != 0) throw ArgumentError("[cuda] a convolution of 2^30 elements along an axis: cut it");
    return static_cast<int>(size);
  }
  static Windows of(const ColumnShape& s, std::int64_t elements) {
    const auto& c = s.conv;
    for (const std::int64_t size : {c.h, c.w, c.oh * c.stride[0], c.ow * c.stride[1], s.row,
                                    c.kh * c.dilation[0], c.kw * c.dilation[1]})
      static_cast<void>(checked(size));
    return {c.h,
            c.w,
            c.c / elements,
            s.group_channels() / elements,
            c.groups,
            c.kw,
            c.oh,
            c.ow,
            s.row / elements,
            c.stride[0],
            c.stride[1],
            checked(c.kh),
            checked(c.padding[0]),
            checked(c.padding[1]),
            checked(c.dilation[0]),
            checked(c.dilation[1])};
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
    const auto k = static_cast<int>(s.row.take_remainder(at));
    const std::int64_t group = s.groups.take_remainder(at);
    const auto ox = static_cast<int>(s.ow.take_remainder(at)), oy = static_cast<int>(s.oh.take_remainder(at));
    const int tap = s.group_channels.quotient(k), ky = s.kw.quotient(tap);
    Word word{};
    if (ky < s.kh) {
      const int kx = tap - ky * static_cast<int>(s.kw.value);
      const int y = oy * static_cast<int>(s.stride_h.value) - s.padding_h + ky * s.dilation_h;
      const int z = ox * static_cast<int>(s.stride_w.value) - s.padding_w + kx * s.dilation_w;
      if (y >= 0 && y < s.h.value && z >= 0 && z < s.w.value)
        word = x[((at * s.h.value + y) * s.w.value + z) * s.channels.value + group * s.group_channels.value +
                 (k - tap * static_cast<int>(s.group_channels.value))];
      if (shifted) word = shift_codes(word);
    }
    columns[i] = word;
  }
};

template <class T>
FQ_HD void add_to(T& sum, const T* v) {
  sum += *v;
}
template <class T>
FQ_HD void add_to(detail::Pack<T>& sum, const detail::Pack<T>* v) {
  const auto own = detail::load_pack(v);
  for (int j = 0; j < detail::Pack<T>::count; ++j) sum.v[j] += own.v[j];
}

template <class Word>
struct AddWindows {
  Windows s;
  const Word* columns;
  Word* dx;

  /// The window of y, 0 <= o < size, whose tap `k` lies on pixel `p`; -1 for none.
  FQ_HD static int window(int p, int k, int padding, int dilation, const Divisor& stride, std::int64_t size) {
    const int first = p + padding - k * dilation;
    if (first < 0) return -1;
    const int o = stride.quotient(first);
    return o * static_cast<int>(stride.value) == first && o < size ? o : -1;
  }

  FQ_HD void operator()(std::int64_t i) const {
    std::int64_t at = i;
    std::int64_t group = s.channels.take_remainder(at);
    const auto z = static_cast<int>(s.w.take_remainder(at)), y = static_cast<int>(s.h.take_remainder(at));
    const std::int64_t channel = s.group_channels.take_remainder(group), step = s.groups.value * s.row.value;
    const Word* image = columns + at * s.oh.value * s.ow.value * step + group * s.row.value + channel;
    const auto kw = static_cast<int>(s.kw.value);
    Word sum{};
    for (int ky = 0; ky < s.kh; ++ky) {
      const int oy = window(y, ky, s.padding_h, s.dilation_h, s.stride_h, s.oh.value);
      if (oy < 0) continue;
      for (int kx = 0; kx < kw; ++kx) {
        const int ox = window(z, kx, s.padding_w, s.dilation_w, s.stride_w, s.ow.value);
        if (ox < 0) continue;
        add_to(sum, image + (oy * s.ow.value + ox) * step + (ky * kw + kx) * s.group_channels.value);
      }
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

template <class Word>
void add(const ColumnShape& s, std::int64_t elements, const void* columns, void* dx, Device device) {
  for_items(
      device, numel(s.conv.x_shape()) / elements,
      AddWindows<Word>{Windows::of(s, elements), static_cast<const Word*>(columns), static_cast<Word*>(dx)});
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
  const auto run = [&]<class T>(T) {
    using Pack = detail::Pack<T>;
    in_sixteens(s, sizeof(T), dx, columns) ? add<Pack>(s, Pack::count, columns, dx, device)
                                           : add<T>(s, 1, columns, dx, device);
  };
  if (dtype == DType::i32) return run(std::int32_t{});
  dtype == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace fq::cuda
