#pragma once

/// The straight-through gradient that ModelOpt and pytorch-quantization share.

#include <algorithm>
#include <array>
#include <cstring>

#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/format.h"
#include "fakequant/core/trace.h"
#include "fakequant/core/variable.h"
#include "fakequant/reference/detail/float_blocks.h"

namespace fq::detail {

/// Throws ArgumentError unless x is f32, f16 or bf16.
void check_floats(const Tensor& x, const char* function);

/// The codes of 1 to 16 bits that both references take; a signed bit has no code above 0. ArgumentError for
/// others.
[[nodiscard]] IntFormat integer_codes(int num_bits, bool is_unsigned, bool narrow_range,
                                      const char* function);

/// How many elements along each axis of `x` share an element of `other`, which broadcasts against it by
/// NumPy's rule. Throws ArgumentError when it does not.
[[nodiscard]] Shape broadcast_block(const Shape& x, const Shape& other, const char* function);

/// Eight bytes of 0 or 1 as bits, the first one lowest.
inline std::uint8_t pack_bits(const std::uint8_t* flags) {
  std::uint64_t word = 0;
  std::memcpy(&word, flags, 8);
  return static_cast<std::uint8_t>((word * 0x0102040810204080u) >> 56);
}

/// Bits [begin, begin + count), which are 0, from predicate(k), k from 0; at most chunk_elements.
template <class F>
void set_bits(std::uint8_t* bits, std::int64_t begin, std::int64_t count, F&& predicate) {
  std::array<std::uint8_t, chunk_elements> flags;
  for (std::int64_t k = 0; k < count; ++k)
    flags[static_cast<std::size_t>(k)] = static_cast<std::uint8_t>(predicate(k));
  std::int64_t k = 0;
  const auto one = [&] { cpu::set_bit(bits, begin + k, flags[static_cast<std::size_t>(k)] != 0); };
  for (; k < count && (begin + k) % 8 != 0; ++k) one();
  for (; k + 8 <= count; k += 8) bits[(begin + k) / 8] = pack_bits(flags.data() + k);
  for (; k < count; ++k) one();
}

/// `mask`, u1 of the shape of x, both row-major: predicate(v, j) for every element, in f32, and the number j
/// of its block.
template <class F>
void fill_mask(const Tensor& x, const Shape& block, F&& predicate, Tensor& mask) {
  auto* bits = static_cast<std::uint8_t*>(mask.mutable_raw());
  std::fill_n(bits, mask.nbytes(), std::uint8_t{0});
  visit_chunks(x, block, [&](const float* v, auto begin, auto count, auto j, auto step) {
    if (step == 0)
      return set_bits(bits, begin, count, [v, j, &predicate](auto k) { return predicate(v[k], j); });
    set_bits(bits, begin, count, [v, j, &predicate](auto k) { return predicate(v[k], j + k); });
  });
}
/// A new mask of a tensor in any layout.
template <class F>
Tensor make_mask(const Tensor& x, const Shape& block, F&& predicate) {
  Tensor mask = Tensor::empty(x.shape(), DType::u1, x.device());
  if (!x.device().is_meta()) fill_mask(x.to(Layout::row_major), block, std::forward<F>(predicate), mask);
  return mask;
}

/// A bound for comparison with values of type `dtype`: rank 0 is rounded to a 16-bit type; otherwise it is
/// f32 and not changed.
[[nodiscard]] Tensor comparison_bound(DType dtype, const Tensor& bound);

/// u1, row-major: |x| <= amax (f32, broadcast against x), as comparison_bound says. A NaN is never within.
[[nodiscard]] Tensor amax_mask(const Tensor& x, const Tensor& amax, const char* function);

/// Result of a quantizing function; the mask only on request.
struct Masked {
  Tensor y, mask;
};

/// Traced arguments of a quantizing function: its range, an input next to x, and its attributes.
struct TracedRange {
  Tensor amax;
  Attributes attributes;

  /// Empty outside of a trace. `bias`: x is shifted first.
  [[nodiscard]] static TracedRange integer(const Amax& amax, const IntFormat& format, bool bias = false);
  [[nodiscard]] static TracedRange floating(const Amax& amax, bool bias);
};

/// y on the tape: dy where the mask is set (everywhere without one), +0 elsewhere, in the type of x.
[[nodiscard]] Variable record_clipped(std::string_view op, const Variable& x, Tensor y, Tensor mask,
                                      TracedRange range = {});

}  // namespace fq::detail
