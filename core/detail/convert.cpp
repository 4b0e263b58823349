#include "fakequant/core/detail/convert.h"

#include <algorithm>
#include <utility>

#include "fakequant/core/numerics/detail/cast.h"

namespace fq::detail {
namespace {

template <class To, class From>
To cast(From value) {
  if constexpr (std::is_integral_v<To> && std::is_integral_v<From> && sizeof(To) >= sizeof(From) &&
                (std::is_signed_v<To> == std::is_signed_v<From> ||
                 (std::is_signed_v<To> && sizeof(To) > sizeof(From))))
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
    // Reads with a stride and writes in order: each output line of the cache is written once.
    const Word* from = x + n * rows * columns;
    Word* to = y + n * rows * columns;
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * columns + c];
  }
}

/// Reads eight bits from any bit position, with 0 beyond the last byte.
std::uint64_t read_bits(const std::uint8_t* x, std::int64_t bytes, std::int64_t bit) {
  const std::int64_t i = bit >> 3;
  const unsigned next = i + 1 < bytes ? x[i + 1] : 0u;
  return ((x[i] | next << 8) >> (bit & 7)) & 0xffu;
}
/// Sets eight bits at any bit position. They must be 0 before.
void add_bits(std::uint8_t* y, std::int64_t bit, std::uint64_t value) {
  const std::int64_t i = bit >> 3;
  const std::uint64_t shifted = value << (bit & 7);
  y[i] = static_cast<std::uint8_t>(y[i] | shifted);
  if (shifted > 0xff) y[i + 1] = static_cast<std::uint8_t>(y[i + 1] | shifted >> 8);
}

/// Moves bit c of byte r to bit r of byte c.
std::uint64_t transpose_8x8(std::uint64_t x) {
  // Swaps 1x1, 2x2 and 4x4 blocks across the diagonal (Warren, Hacker's Delight, section 7-3).
  constexpr std::pair<int, std::uint64_t> steps[] = {
      {7, 0x00aa00aa00aa00aaull}, {14, 0x0000cccc0000ccccull}, {28, 0x00000000f0f0f0f0ull}};
  for (const auto& [shift, swapped] : steps) {
    const std::uint64_t t = (x ^ (x >> shift)) & swapped;
    x ^= t ^ (t << shift);
  }
  return x;
}

/// Transposes bits [rows][columns] at bit `at` of x to [columns][rows] in y, whose bits must be 0.
void transpose_image_bits(const std::uint8_t* x, std::int64_t bytes, std::uint8_t* y, std::int64_t at,
                          std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; r += 8)
    for (std::int64_t c = 0; c < columns; c += 8) {
      const std::int64_t height = std::min<std::int64_t>(8, rows - r);
      const std::int64_t width = std::min<std::int64_t>(8, columns - c);
      const std::uint64_t inside = (1u << width) - 1;
      std::uint64_t tile = 0;
      for (std::int64_t i = 0; i < height; ++i)
        // A byte of the tile is a row. Bits beyond the edge are 0, so edge tiles write no bits of their
        // neighbours.
        tile |= (read_bits(x, bytes, at + (r + i) * columns + c) & inside) << (8 * i);
      tile = transpose_8x8(tile);
      for (std::int64_t j = 0; j < width; ++j) add_bits(y, at + (c + j) * rows + r, tile >> (8 * j) & 0xff);
    }
}

void transpose_bits(const Tensor& in, Tensor& out) {
  const auto& s = in.shape();
  const bool to_last = out.layout() == Layout::channels_last;
  const std::int64_t channels = s[1], pixels = s[2] * s[3], image = channels * pixels;
  const auto* x = static_cast<const std::uint8_t*>(in.raw());
  auto* y = static_cast<std::uint8_t*>(out.mutable_raw());
  std::fill_n(y, out.nbytes(), std::uint8_t{0});
  const bool apart = image % 8 == 0;  // images share no byte
#pragma omp parallel for schedule(static) if (apart && in.numel() > 65536)
  for (std::int64_t n = 0; n < s[0]; ++n)
    transpose_image_bits(x, in.nbytes(), y, n * image, to_last ? channels : pixels,
                         to_last ? pixels : channels);
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
    case 1:
      return transpose_bits(in, out);
    case 8:
      return transpose_channels<std::uint8_t>(in.raw(), out.mutable_raw(), in.shape(), to_last);
    case 16:
      return transpose_channels<std::uint16_t>(in.raw(), out.mutable_raw(), in.shape(), to_last);
    case 32:
      return transpose_channels<std::uint32_t>(in.raw(), out.mutable_raw(), in.shape(), to_last);
    default:
      return transpose_channels<std::uint64_t>(in.raw(), out.mutable_raw(), in.shape(), to_last);
  }
}

}  // namespace fq::detail
