#include "fakequant/core/convert.h"

#include <cmath>
#include <limits>

namespace fq::detail {
namespace {

template <class To>
To from_double(double value) {
  if constexpr (std::is_same_v<To, float16> || std::is_same_v<To, bfloat16>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else {
    using Limits = std::numeric_limits<To>;
    if (std::isnan(value)) return 0;
    if (value <= static_cast<double>(Limits::min())) return Limits::min();
    if (value >= static_cast<double>(Limits::max())) return Limits::max();
    return static_cast<To>(std::nearbyint(value));
  }
}

template <class From>
double as_double(From value) {
  if constexpr (std::is_same_v<From, float16> || std::is_same_v<From, bfloat16>) return static_cast<float>(value);
  else return static_cast<double>(value);
}

template <class To, class From>
To cast(From value) {
  if constexpr (std::is_integral_v<To> && std::is_integral_v<From> && sizeof(To) >= sizeof(From) &&
                (std::is_signed_v<To> == std::is_signed_v<From> || sizeof(To) > sizeof(From)))
    return static_cast<To>(value);  // exact, also beyond the 53 bits of a double
  else
    return from_double<To>(as_double(value));
}

template <class Word>
void transpose_channels(const void* in, void* out, const Shape& s, bool to_last) {
  const auto* x = static_cast<const Word*>(in);
  auto* y = static_cast<Word*>(out);
  const std::int64_t channels = s[1], pixels = s[2] * s[3];
  const std::int64_t rows = to_last ? channels : pixels, columns = to_last ? pixels : channels;
#pragma omp parallel for schedule(static) if (s[0] * rows * columns > 65536)
  for (std::int64_t n = 0; n < s[0]; ++n) {
    const Word* from = x + n * rows * columns;
    Word* to = y + n * rows * columns;
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * columns + c];
  }
}

/// Bits [n][rows][columns] of x to [n][columns][rows] of y, which is 0; of image n.
void transpose_image_bits(const std::uint8_t* x, std::uint8_t* y, std::int64_t n, std::int64_t rows,
                          std::int64_t columns) {
  std::int64_t to = n * rows * columns;
  unsigned byte = 0;
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0, from = n * rows * columns + c; r < rows; ++r, from += columns) {
      byte |= ((x[from >> 3] >> (from & 7)) & 1u) << (to & 7);
      if ((++to & 7) != 0) continue;
      y[(to >> 3) - 1] = static_cast<std::uint8_t>(y[(to >> 3) - 1] | byte);
      byte = 0;
    }
  if (byte != 0) y[to >> 3] = static_cast<std::uint8_t>(y[to >> 3] | byte);
}

void transpose_bits(const Tensor& in, Tensor& out) {
  const auto& s = in.shape();
  const bool to_last = out.layout() == Layout::channels_last;
  const std::int64_t channels = s[1], pixels = s[2] * s[3];
  const auto* x = static_cast<const std::uint8_t*>(in.raw());
  auto* y = static_cast<std::uint8_t*>(out.mutable_raw());
  std::fill_n(y, out.nbytes(), std::uint8_t{0});
  const bool apart = channels * pixels % 8 == 0;  // images share no byte
#pragma omp parallel for schedule(static) if (apart && in.numel() > 65536)
  for (std::int64_t n = 0; n < s[0]; ++n)
    transpose_image_bits(x, y, n, to_last ? channels : pixels, to_last ? pixels : channels);
}

}  // namespace

void fill(Tensor& out, double value) {
  visit_dtype(out.dtype(), "full", [&]<class T>(T) {
    std::fill_n(static_cast<T*>(out.mutable_raw()), out.numel(), from_double<T>(value));
  });
}

void convert(const Tensor& in, Tensor& out) {
  visit_dtype(in.dtype(), "to", [&]<class From>(From) {
    visit_dtype(out.dtype(), "to", [&]<class To>(To) {
      const auto* x = static_cast<const From*>(in.raw());
      auto* y = static_cast<To*>(out.mutable_raw());
      for (std::int64_t i = 0; i < in.numel(); ++i) y[i] = cast<To>(x[i]);
    });
  });
}

void relayout(const Tensor& in, Tensor& out) {
  const bool to_last = out.layout() == Layout::channels_last;
  switch (bit_width(in.dtype())) {
    case 1: return transpose_bits(in, out);
    case 8: return transpose_channels<std::uint8_t>(in.raw(), out.mutable_raw(), in.shape(), to_last);
    case 16: return transpose_channels<std::uint16_t>(in.raw(), out.mutable_raw(), in.shape(), to_last);
    case 32: return transpose_channels<std::uint32_t>(in.raw(), out.mutable_raw(), in.shape(), to_last);
    case 64: return transpose_channels<std::uint64_t>(in.raw(), out.mutable_raw(), in.shape(), to_last);
    default: throw ArgumentError(fmt::format("[to] {} has no other layout: dequantize it first", name(in.dtype())));
  }
}

}  // namespace fq::detail
