#include "fakequant/core/backend/cpu/pool/pool_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/pool/max_pool_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/pool/pool-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

using cpu::MaxPoolGradient;
using cpu::MaxPoolRows;
using detail::Covering;
using detail::PoolSizes;
using detail::Window;

/// Position lanes of the same width as D, stored as bytes or 32-bit integers.
template <class D>
using PlaceTag = hn::RebindToUnsigned<D>;

template <class D, class Place>
hn::Vec<PlaceTag<D>> load_places(D, const Place* p) {
  const PlaceTag<D> du;
  const hn::Rebind<std::uint32_t, D> d32;
  const auto places = hn::LoadU(hn::Rebind<Place, D>(), p);
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(Place)) {
    return places;
  } else if constexpr (sizeof(hn::TFromD<D>) == 8 && sizeof(Place) == 1) {
    return hn::PromoteTo(du, hn::PromoteTo(d32, places));
  } else {
    return hn::PromoteTo(du, places);
  }
}

template <class D, class Place>
void store_places(D, hn::Vec<PlaceTag<D>> places, Place* p) {
  const hn::Rebind<Place, D> d;
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(Place)) {
    hn::StoreU(places, d, p);
  } else {
    hn::StoreU(hn::TruncateTo(d, places), d, p);
  }
}

/// Returns where v replaces the best value: if it is larger or NaN.
template <class D, class V>
hn::Mask<D> wins(D, V v, V best) {
  // NaN wins, as in torch. A comparison alone would drop it.
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) return hn::Or(hn::Gt(v, best), hn::IsNaN(v));
  return hn::Gt(v, best);
}

struct NoFlip {
  template <class D>
  hn::Vec<D> load(D d, const hn::TFromD<D>* p, std::int64_t) const {
    return hn::LoadU(d, p);
  }
  template <class D, class V>
  V undo(D, V v, std::int64_t) const {
    return v;
  }
};

// Bits of -1 turn v into -v - 1, which reverses the order of int32: the maximum is then the minimum. It
// cannot overflow, unlike -v.
struct Flip {
  const std::int32_t* bits;

  template <class D>
  hn::Vec<D> load(D d, const std::int32_t* p, std::int64_t c) const {
    return hn::Xor(hn::LoadU(d, p), hn::LoadU(d, bits + c));
  }
  template <class D, class V>
  V undo(D d, V v, std::int64_t c) const {
    return hn::Xor(v, hn::LoadU(d, bits + c));
  }
};

/// Computes one vector of channels of one window. `x` is the image.
template <class D, class T, class Place, class Flipped>
HWY_INLINE void max_window(D d, const PoolSizes& s, const Window& window, const T* x, std::int64_t c,
                           const Flipped& flip, T* y, Place* argmax) {
  const PlaceTag<D> du;
  using Wide = hn::TFromD<PlaceTag<D>>;
  const auto at = [&](std::int64_t h, std::int64_t w) { return x + (h * s.w + w) * s.c + c; };
  auto best = flip.load(d, at(window.top, window.left), c);
  auto place = hn::Set(du, static_cast<Wide>(window.place(s, window.top, window.left)));
  for (std::int64_t h = window.top; h < window.bottom; ++h)
    for (std::int64_t w = window.left; w < window.right; ++w) {
      const auto v = flip.load(d, at(h, w), c);
      // Strictly larger: the first of equal maxima wins, as in torch.
      const auto won = wins(d, v, best);
      best = hn::IfThenElse(won, v, best);
      if (argmax != nullptr)
        place = hn::IfThenElse(hn::RebindMask(du, won), hn::Set(du, static_cast<Wide>(window.place(s, h, w))),
                               place);
    }
  hn::StoreU(flip.undo(d, best, c), d, y + c);
  if (argmax != nullptr) store_places(d, place, argmax + c);
}

// x: [n, h, w, c], y: [n, oh, ow, c]. `row` counts the rows of y over all images.
template <class T, class Place, class Flipped>
void max_row(const MaxPoolRows& p, std::int64_t row, const Flipped& flip) {
  const PoolSizes s = p.sizes;
  const T* image = static_cast<const T*>(p.x) + row / s.oh * s.h * s.w * s.c;
  T* y = static_cast<T*>(p.y) + row * s.ow * s.c;
  Place* argmax = p.argmax == nullptr ? nullptr : static_cast<Place*>(p.argmax) + row * s.ow * s.c;
  for (std::int64_t j = 0; j < s.ow; ++j) {
    const Window window(s, row % s.oh, j);
    visit_channels<T>(s.c, [&](auto d, std::int64_t c) HWY_ATTR {
      max_window(d, s, window, image, c, flip, y + j * s.c, argmax == nullptr ? nullptr : argmax + j * s.c);
    });
  }
}

template <class T>
void typed_max_row(const MaxPoolRows& p, std::int64_t row) {
  // Positions of 32 bits need lanes of at least 32 bits. The caller widens shorter codes.
  if constexpr (sizeof(T) >= 4)
    if (p.argmax_dtype == DType::i32) return max_row<T, std::uint32_t>(p, row, NoFlip{});
  max_row<T, std::uint8_t>(p, row, NoFlip{});
}

void MaxPoolRow(const MaxPoolRows& p, std::int64_t row) {
  switch (p.dtype) {
    case DType::f32:
      return typed_max_row<float>(p, row);
    case DType::f64:
      return typed_max_row<double>(p, row);
    case DType::i8:
      return typed_max_row<std::int8_t>(p, row);
    case DType::u8:
      return typed_max_row<std::uint8_t>(p, row);
    case DType::i16:
      return typed_max_row<std::int16_t>(p, row);
    default:
      if (p.flip == nullptr) return typed_max_row<std::int32_t>(p, row);
      if (p.argmax_dtype == DType::i32) return max_row<std::int32_t, std::uint32_t>(p, row, Flip{p.flip});
      max_row<std::int32_t, std::uint8_t>(p, row, Flip{p.flip});
  }
}

template <class T, class Place>
void max_gradient(const MaxPoolGradient& p, std::int64_t row) {
  const PoolSizes s = p.sizes;
  const std::int64_t n = row / s.h, h = row % s.h + s.ph;
  const T* dy = static_cast<const T*>(p.dy) + n * s.oh * s.ow * s.c;
  const Place* argmax = static_cast<const Place*>(p.argmax) + n * s.oh * s.ow * s.c;
  Covering rows{s.kh, s.sh, s.oh}, columns{s.kw, s.sw, s.ow};
  rows.advance(h);
  for (std::int64_t w = s.pw; w < s.w + s.pw; ++w) {
    columns.advance(w);
    T* dx = static_cast<T*>(p.dx) + (row * s.w + w - s.pw) * s.c;
    visit_channels<T>(s.c, [&](auto d, std::int64_t c) HWY_ATTR {
      const PlaceTag<decltype(d)> du;
      auto sum = hn::Zero(d);
      for (std::int64_t i = rows.begin; i < rows.end; ++i)
        for (std::int64_t j = columns.begin; j < columns.end; ++j) {
          // The position of this pixel in window (i, j). dy passes where the window's maximum is here.
          const std::int64_t at = (i * s.ow + j) * s.c + c, place = (h - i * s.sh) * s.kw + (w - j * s.sw);
          const auto here = hn::Set(du, static_cast<hn::TFromD<decltype(du)>>(place));
          const auto won = hn::Eq(load_places(d, argmax + at), here);
          sum = hn::IfThenElse(hn::RebindMask(d, won), hn::Add(sum, hn::LoadU(d, dy + at)), sum);
        }
      hn::StoreU(sum, d, dx + c);
    });
  }
}

void MaxPoolRowBackward(const MaxPoolGradient& p, std::int64_t row) {
  const bool bytes = p.argmax_dtype == DType::u8;
  if (p.dtype == DType::f32)
    return bytes ? max_gradient<float, std::uint8_t>(p, row) : max_gradient<float, std::uint32_t>(p, row);
  bytes ? max_gradient<double, std::uint8_t>(p, row) : max_gradient<double, std::uint32_t>(p, row);
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(MaxPoolRow);
HWY_EXPORT(MaxPoolRowBackward);

namespace cpu {

void max_pool_row(const MaxPoolRows& pool, std::int64_t row) { HWY_DYNAMIC_DISPATCH(MaxPoolRow)(pool, row); }
void max_pool_row_backward(const MaxPoolGradient& pool, std::int64_t row) {
  HWY_DYNAMIC_DISPATCH(MaxPoolRowBackward)(pool, row);
}

}  // namespace cpu
}  // namespace fq
#endif
