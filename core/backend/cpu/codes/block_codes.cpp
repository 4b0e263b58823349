#include "fakequant/core/backend/cpu/codes/block_codes.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "fakequant/core/backend/cpu/codes/element_kernels.h"
#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/detail/quantizer_checks.h"
#include "fakequant/core/numerics/detail/minifloat.h"

namespace fq::cpu {
namespace {

/// Elements that are taken at once: they stay in the first cache, and begin on bytes of masks and of codes.
constexpr std::int64_t kCodeChunk = 2048;
static_assert(kCodeChunk % element_group == 0);

std::int64_t whole_groups(std::int64_t count) {
  return (count + element_group - 1) / element_group * element_group;
}

/// What a chunk is computed in, where it ends within a group or its codes are packed.
struct Scratch {
  alignas(64) float x[kCodeChunk], scale[kCodeChunk], amax[kCodeChunk];
  alignas(64) std::int32_t codes[kCodeChunk], copied[kCodeChunk];
  alignas(64) std::uint8_t mask[kCodeChunk / 8], packed[kCodeChunk / 2];
};

/// Elements that kernels take as one vector.
constexpr std::int64_t kVector = 16;

/// The numbers of the blocks as kernels take them: where they lie, if whole runs of elements share them, else
/// spread to one a vector, or one an element where a vector has several.
class BlockNumbers {
 public:
  BlockNumbers(const Grid& grid, const Shape& shape, Layout layout, bool inverse)
      : map_(detail::BlockMap::of(shape, grid.granularity.block_shape(shape), layout)),
        scales_(detail::numbers_in_memory(grid.scale, grid.granularity, shape, layout)),
        ranges_(detail::numbers_in_memory(grid.amax, grid.granularity, shape, layout)),
        scale_(scales_.data<float>(scales_.layout())),
        amax_(ranges_.data<float>(ranges_.layout())),
        index_(map_.number_index()),
        unit_(map_.last.length % kVector == 0 && map_.last.size % kVector == 0 ? kVector : 1) {
    if (!inverse) return;
    inverses_.resize(static_cast<std::size_t>(scales_.numel()));
    std::transform(scale_, scale_ + scales_.numel(), inverses_.begin(),
                   [](float scale) { return scalar::div_(1.0f, scale); });
    scale_ = inverses_.data();
  }

  [[nodiscard]] ElementNumbers of(std::int64_t begin, std::int64_t end, bool with_amax, Scratch& s) const {
    const bool whole = (end - begin) % element_group == 0;  // else a group reaches beyond the last block
    if (index_ && (whole || map_.blocks() == 1)) return {scale_, amax_, begin, *index_};
    spread(scale_, begin, end, s.scale);
    if (with_amax) spread(amax_, begin, end, s.amax);
    constexpr detail::NumberIndex one_a_vector{std::countr_zero(std::uint64_t{kVector}), 0, 0};
    return {s.scale, s.amax, 0, unit_ == 1 ? one_each : one_a_vector};
  }

 private:
  /// Numbers beyond the end are 1.
  void spread(const float* numbers, std::int64_t begin, std::int64_t end, float* out) const {
    const auto at = [&](std::int64_t i) { return out + (i - begin + unit_ - 1) / unit_; };
    map_.for_runs(begin, end, [&](std::int64_t i, std::int64_t stop, std::int64_t j, std::int64_t step) {
      if (step == 1)
        std::copy_n(numbers + j, stop - i, at(i));
      else
        std::fill(at(i), at(stop), numbers[j]);
    });
    std::fill(at(end), at(begin + whole_groups(end - begin)), 1.0f);
  }

  detail::BlockMap map_;
  Tensor scales_, ranges_;
  const float *scale_, *amax_;
  std::optional<detail::NumberIndex> index_;
  std::int64_t unit_;  // elements that have one of the spread numbers
  std::vector<float> inverses_;
};

/// f(begin, end) for chunks of all elements, in parallel.
template <class F>
void for_chunks(std::int64_t count, F&& f) {
  const std::int64_t chunks = (count + kCodeChunk - 1) / kCodeChunk;
#pragma omp parallel for schedule(static) if (chunks > 8)
  for (std::int64_t c = 0; c < chunks; ++c) f(c * kCodeChunk, std::min(count, (c + 1) * kCodeChunk));
}

struct Codes {
  std::byte* data;
  DType dtype;

  [[nodiscard]] bool packed() const { return bit_width(dtype) == 4; }
  [[nodiscard]] std::byte* at(std::int64_t i) const { return data + byte_size(dtype, i); }
};

bool is_e2m1(const ElementFormat& f) { return !f.integer && f.exponent == 2 && f.mantissa == 1; }

bool quantize_chunk(const float* x, std::int64_t begin, std::int64_t end, const BlockNumbers& numbers,
                    const ElementFormat& format, const Codes& codes, std::uint8_t* mask) {
  Scratch s;
  const std::int64_t count = end - begin, all = whole_groups(count);
  const bool whole = all == count;
  if (!whole) std::fill(std::copy_n(x + begin, count, s.x), s.x + all, 0.0f);
  std::uint8_t* bits = mask == nullptr ? nullptr : whole ? mask + begin / 8 : s.mask;
  const ElementNumbers by = numbers.of(begin, end, true, s);
  const float* values = whole ? x + begin : s.x;
  auto* packed = whole ? reinterpret_cast<std::uint8_t*>(codes.at(begin)) : s.packed;
  bool nan = false;
  if (is_e2m1(format)) {
    nan = quantize_e2m1(values, by, all, format.inverse, packed, bits);
  } else {
    void* to = whole && !codes.packed() ? static_cast<void*>(codes.at(begin)) : s.codes;
    nan = quantize_elements(values, by, all, format, to, bits);
    if (codes.packed()) pack_nibbles(reinterpret_cast<const std::uint8_t*>(s.codes), all, packed);
  }
  if (!whole)
    std::memcpy(codes.at(begin), codes.packed() ? static_cast<const void*>(s.packed) : s.codes,
                static_cast<std::size_t>(byte_size(codes.dtype, count)));
  if (mask != nullptr && !whole) {
    if (count % 8 != 0)
      bits[count / 8] = static_cast<std::uint8_t>(bits[count / 8] & ((1u << count % 8) - 1));
    std::copy_n(bits, (count + 7) / 8, mask + begin / 8);
  }
  return nan;
}

}  // namespace

ElementFormat element_format(const Format& format, bool inverse) {
  const bool integer = format.is_integer();
  const auto number = integer ? Minifloat::finite(4, 3) : Minifloat::of(format.floating());
  const DType dtype = format.code_dtype();
  return {.integer = integer,
          .is_unsigned = integer && format.integer().is_unsigned,
          .lower = format.lower(),
          .bound = format.bound(),
          .max = number.max,
          .min_normal = number.min_normal,
          .step = number.step,
          .exponent = number.exponent,
          .mantissa = number.mantissa,
          .inverse = inverse && !integer,
          .dtype = bit_width(dtype) == 4 ? DType::u8 : dtype};
}

bool quantize_blocks(const Tensor& x, QuantizedTensor& out) {
  if (x.numel() == 0) return false;
  const bool inverse = out.grid.scale_bits == 1 && out.grid.unit == 1 && !out.grid.format.is_integer();
  const BlockNumbers numbers(out.grid, x.shape(), x.layout(), inverse);
  const ElementFormat format = element_format(out.grid.format, inverse);
  const auto* values = x.data<float>(x.layout());
  const Codes codes{static_cast<std::byte*>(out.codes.mutable_raw()), out.codes.dtype()};
  auto* mask = out.mask.defined() ? static_cast<std::uint8_t*>(out.mask.mutable_raw()) : nullptr;
  std::atomic<bool> nan{false};
  for_chunks(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    if (quantize_chunk(values, begin, end, numbers, format, codes, mask))
      nan.store(true, std::memory_order_relaxed);
  });
  return nan.load();
}

namespace {

template <class Out>
void decode_as(const QuantizedTensor& x, bool scaled, Tensor& out) {
  const BlockNumbers numbers(x.grid, x.shape(), x.layout(), false);
  const ElementFormat format = element_format(x.grid.format);
  const float one = 1;
  auto* values = out.mutable_data<Out>(out.layout());
  const auto* bytes = static_cast<const std::byte*>(x.codes.raw());
  const DType dtype = x.codes.dtype();
  for_chunks(out.numel(), [&](std::int64_t begin, std::int64_t end) {
    Scratch s;
    const std::int64_t count = end - begin, all = whole_groups(count);
    const ElementNumbers by =
        scaled ? numbers.of(begin, end, false, s) : ElementNumbers{&one, &one, 0, one_for_all};
    const void* from = bytes + byte_size(dtype, begin);
    if (all != count) {
      std::memset(s.copied, 0, static_cast<std::size_t>(byte_size(dtype, all)));
      from = std::memcpy(s.copied, from, static_cast<std::size_t>(byte_size(dtype, count)));
    }
    auto* rest = reinterpret_cast<Out*>(s.x);
    auto* to = all == count ? values + begin : rest;
    const auto* packed = static_cast<const std::uint8_t*>(from);
    if (bit_width(dtype) == 4 && is_e2m1(format)) {
      decode_e2m1(packed, by, all, to);
    } else {
      if (bit_width(dtype) == 4) {
        unpack_nibbles(packed, all, reinterpret_cast<std::uint8_t*>(s.codes));
        from = s.codes;
      }
      decode_elements(from, by, all, format, to);
    }
    if (all != count) std::copy_n(rest, count, values + begin);
  });
}

}  // namespace

void decode_blocks(const QuantizedTensor& x, bool scaled, Tensor& out) {
  if (out.numel() == 0) return;
  out.dtype() == DType::bf16 ? decode_as<bfloat16>(x, scaled, out) : decode_as<float>(x, scaled, out);
}

}  // namespace fq::cpu
