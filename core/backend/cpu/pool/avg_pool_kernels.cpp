#include "fakequant/core/backend/cpu/pool/pool_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/pool/avg_pool_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/pool/pool-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

using cpu::AveragePool;
using detail::Covering;
using detail::PoolSizes;
using detail::Window;

/// Loads values in the lanes of D: floats unchanged, codes times their scale.
template <class D, class From>
hn::Vec<D> load_values(D d, const From* p, float scale) {
  if constexpr (std::is_same_v<From, hn::TFromD<D>>) {
    return hn::LoadU(d, p);
  } else {
    const hn::RebindToSigned<D> di;
    const auto codes = hn::PromoteTo(di, hn::LoadU(hn::Rebind<From, D>(), p));
    return hn::Mul(hn::ConvertTo(d, codes), hn::Set(d, scale));
  }
}

// x: [n, h, w, c], y: [n, oh, ow, c]. `row` counts the rows of y over all images.
template <class From, class T>
void average_row(const AveragePool& p, std::int64_t row) {
  const PoolSizes s = p.sizes;
  const From* image = static_cast<const From*>(p.in) + row / s.oh * s.h * s.w * s.c;
  for (std::int64_t j = 0; j < s.ow; ++j) {
    const Window window(s, row % s.oh, j);
    const T count = static_cast<T>(p.include_padding ? window.padded_pixels(s) : window.pixels());
    T* y = static_cast<T*>(p.out) + (row * s.ow + j) * s.c;
    visit_channels<T>(s.c, [&](auto d, std::int64_t c) HWY_ATTR {
      // ONNX Runtime adds in (h, w) order, which determines the bits.
      auto sum = hn::Zero(d);
      for (std::int64_t h = window.top; h < window.bottom; ++h)
        for (std::int64_t w = window.left; w < window.right; ++w)
          sum = hn::Add(sum, load_values(d, image + (h * s.w + w) * s.c + c, p.scale));
      // A division, not a multiplication by 1 / count: only then ties round as in ONNX Runtime.
      hn::StoreU(hn::Div(sum, hn::Set(d, count)), d, y + c);
    });
  }
}

void AveragePoolRow(const AveragePool& p, std::int64_t row) {
  switch (p.dtype) {
    case DType::f64:
      return average_row<double, double>(p, row);
    case DType::i8:
      return average_row<std::int8_t, float>(p, row);
    case DType::u8:
      return average_row<std::uint8_t, float>(p, row);
    default:
      return average_row<float, float>(p, row);
  }
}

// Gathers per input pixel instead of scattering per window: rows of dx are independent, and the order of sums
// is fixed.
template <class T>
void average_gradient(const AveragePool& p, std::int64_t row) {
  const PoolSizes s = p.sizes;
  const std::int64_t whole = s.window();
  const T share_of_whole = T{1} / static_cast<T>(whole);
  const T* dy = static_cast<const T*>(p.in) + row / s.h * s.oh * s.ow * s.c;
  Covering rows{s.kh, s.sh, s.oh}, columns{s.kw, s.sw, s.ow};
  rows.advance(row % s.h + s.ph);
  for (std::int64_t w = 0; w < s.w; ++w) {
    columns.advance(w + s.pw);
    T* dx = static_cast<T*>(p.out) + (row * s.w + w) * s.c;
    visit_channels<T>(s.c, [&](auto d, std::int64_t c) HWY_ATTR {
      auto sum = hn::Zero(d);
      for (std::int64_t i = rows.begin; i < rows.end; ++i)
        for (std::int64_t j = columns.begin; j < columns.end; ++j) {
          const Window window(s, i, j);
          const std::int64_t pixels = p.include_padding ? window.padded_pixels(s) : window.pixels();
          // Windows at the border have fewer pixels.
          const T share = pixels == whole ? share_of_whole : T{1} / static_cast<T>(pixels);
          const auto gradient = hn::LoadU(d, dy + (i * s.ow + j) * s.c + c);
          sum = hn::Add(sum, hn::Mul(gradient, hn::Set(d, share)));
        }
      hn::StoreU(sum, d, dx + c);
    });
  }
}

void AveragePoolRowBackward(const AveragePool& p, std::int64_t row) {
  p.dtype == DType::f64 ? average_gradient<double>(p, row) : average_gradient<float>(p, row);
}

template <class Code>
void sum_codes(const void* codes, std::int64_t pixels, std::int64_t channels, std::int32_t* sums) {
  const Code* x = static_cast<const Code*>(codes);
  visit_channels<std::int32_t>(channels, [&](auto d, std::int64_t c) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (std::int64_t i = 0; i < pixels; ++i) {
      const auto v = hn::LoadU(hn::Rebind<Code, decltype(d)>(), x + i * channels + c);
      if constexpr (sizeof(Code) == 4)
        sum = hn::Add(sum, v);
      else
        // int32 is exact for up to 2^23 pixels of 8-bit codes.
        sum = hn::Add(sum, hn::PromoteTo(d, v));
    }
    hn::StoreU(sum, d, sums + c);
  });
}

void SumImage(const void* codes, DType dtype, std::int64_t pixels, std::int64_t channels,
              std::int32_t* sums) {
  switch (dtype) {
    case DType::i8:
      return sum_codes<std::int8_t>(codes, pixels, channels, sums);
    case DType::u8:
      return sum_codes<std::uint8_t>(codes, pixels, channels, sums);
    case DType::i16:
      return sum_codes<std::int16_t>(codes, pixels, channels, sums);
    default:
      return sum_codes<std::int32_t>(codes, pixels, channels, sums);
  }
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(AveragePoolRow);
HWY_EXPORT(AveragePoolRowBackward);
HWY_EXPORT(SumImage);

namespace cpu {

void avg_pool_row(const AveragePool& pool, std::int64_t row) {
  HWY_DYNAMIC_DISPATCH(AveragePoolRow)(pool, row);
}
void avg_pool_row_backward(const AveragePool& pool, std::int64_t row) {
  HWY_DYNAMIC_DISPATCH(AveragePoolRowBackward)(pool, row);
}
void sum_image(const void* codes, DType dtype, std::int64_t pixels, std::int64_t channels,
               std::int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(SumImage)(codes, dtype, pixels, channels, sums);
}

}  // namespace cpu
}  // namespace fq
#endif
