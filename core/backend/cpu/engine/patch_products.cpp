#include "fakequant/core/backend/cpu/engine/patch_products.h"

#include <algorithm>
#include <cstring>

#include "fakequant/core/backend/cpu/engine/dot_products.h"
#include "fakequant/core/backend/cpu/engine/word_products.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {
namespace {

using detail::Codes;
using detail::ConvShape;

constexpr std::int64_t kShortFilter = 32;      // codes: shorter ones leave most of a vector empty
constexpr std::int64_t kPatchBytes = 1 << 17;  // of the pixels taken at a time
constexpr std::int64_t kFewPixels = 16, kManyPixels = 1024;

std::int64_t filter_length(const ConvShape& s) { return s.c / s.groups * s.kh * s.kw; }

/// [o, kh, kw, c/groups], the order of a patch, from [o, c/groups, kh, kw].
Tensor filters_of(const ConvShape& s, const Codes& w) {
  const std::int64_t channels = s.c / s.groups, taps = s.kh * s.kw;
  Tensor out = Tensor::empty({s.o, taps * channels}, w.dtype);
  const auto* from = static_cast<const char*>(w.data);
  auto* to = static_cast<char*>(out.mutable_raw());
  for (std::int64_t o = 0; o < s.o; ++o, from += channels * taps, to += channels * taps)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t t = 0; t < taps; ++t) to[t * channels + c] = from[c * taps + t];
  return out;
}

/// What the filters of a group read for one output pixel, counted over all images.
void gather(const ConvShape& s, const char* x, std::int64_t pixel, std::int64_t group, char* to) {
  const auto channels = static_cast<std::size_t>(s.c / s.groups);
  const std::int64_t left = pixel % s.ow * s.stride[1] - s.padding[1];
  const std::int64_t top = pixel / s.ow % s.oh * s.stride[0] - s.padding[0];
  const char* image = x + pixel / (s.ow * s.oh) * s.h * s.w * s.c + group * (s.c / s.groups);
  for (std::int64_t i = 0; i < s.kh; ++i)
    for (std::int64_t j = 0; j < s.kw; ++j, to += channels) {
      const std::int64_t row = top + i * s.dilation[0], column = left + j * s.dilation[1];
      if (row < 0 || row >= s.h || column < 0 || column >= s.w)
        std::memset(to, 0, channels);
      else
        std::memcpy(to, image + (row * s.w + column) * s.c, channels);
    }
}

/// Sums of the pixels from `first` on, of one group.
void convolve(const ConvShape& s, const Codes& x, const Tensor& filters, std::int64_t first,
              std::int64_t pixels, std::int64_t group, std::int32_t* sums) {
  const std::int64_t length = filter_length(s), outputs = s.o / s.groups;
  Tensor patches = Tensor::empty({pixels, length}, x.dtype);
  auto* rows = static_cast<char*>(patches.mutable_raw());
  for (std::int64_t p = 0; p < pixels; ++p)
    gather(s, static_cast<const char*>(x.data), first + p, group, rows + p * length);
  const Codes left{rows, x.dtype, x.largest};
  const Codes right{static_cast<const char*>(filters.raw()) + group * outputs * length, filters.dtype(), 0};
  if (s.groups == 1) return word_products(pixels, outputs, length, left, right, sums + first * s.o);
  Tensor part = Tensor::empty({pixels, outputs}, DType::i32);
  word_products(pixels, outputs, length, left, right, part.mutable_data<std::int32_t>());
  for (std::int64_t p = 0; p < pixels; ++p)
    std::copy_n(part.data<std::int32_t>() + p * outputs, outputs, sums + (first + p) * s.o + group * outputs);
}

}  // namespace

bool by_patches(const ConvShape& shape) { return has_dot_products() && filter_length(shape) >= kShortFilter; }

void convolve_patches(const ConvShape& s, const Codes& x, const Codes& w, std::int32_t* sums) {
  const std::int64_t all = s.n * s.oh * s.ow, length = std::max<std::int64_t>(filter_length(s), 1);
  const std::int64_t step = std::clamp(kPatchBytes / length, kFewPixels, kManyPixels);
  const std::int64_t parts = (all + step - 1) / step;
  const Tensor filters = filters_of(s, w);
#pragma omp parallel for schedule(static)
  for (std::int64_t task = 0; task < parts * s.groups; ++task) {
    const std::int64_t first = task % parts * step;
    convolve(s, x, filters, first, std::min(step, all - first), task / parts, sums);
  }
}

}  // namespace fq::cpu
