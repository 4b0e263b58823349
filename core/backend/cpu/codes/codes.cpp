#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "fakequant/core/backend/cpu/codes/element_kernels.h"
#include "fakequant/core/backend/cpu/codes/gradient_kernels.h"
#include "fakequant/core/backend/cpu/codes/grid.h"
#include "fakequant/core/backend/cpu/codes/quantize_kernels.h"
#include "fakequant/core/backend/cpu/vector/cache.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/quantizer_checks.h"
#include "fakequant/core/numerics/detail/minifloat.h"

namespace fq::cpu {
namespace {

/// Elements per chunk. A chunk fits into the first-level cache and begins on a byte of masks and codes.
constexpr std::int64_t kCodeChunk = 2048;
static_assert(kCodeChunk % element_group == 0);

std::int64_t whole_groups(std::int64_t count) {
  return (count + element_group - 1) / element_group * element_group;
}

// The kernels process whole groups. The last chunk of a tensor is copied here, so that they read and write no
// memory beyond its end.
/// Buffers for a chunk that ends within a group or has packed codes.
struct Scratch {
  alignas(64) float x[kCodeChunk], scale[kCodeChunk], amax[kCodeChunk];
  alignas(64) std::int32_t codes[kCodeChunk], copied[kCodeChunk];
  alignas(64) std::uint8_t mask[kCodeChunk / 8], packed[kCodeChunk / 2];
};

/// Elements per kernel vector.
constexpr std::int64_t kVector = 16;

/// Per-block numbers in the form of kernels: the original numbers if whole runs of elements share them, else
/// spread to one per vector, or to one per element if a vector has several.
class BlockNumbers {
 public:
  BlockNumbers(const Grid& grid, const Shape& shape, Layout layout, bool inverse)
      : map_(detail::BlockMap::of(shape, grid.granularity.block_shape(shape), layout)),
        scales_(detail::numbers_in_memory(grid.scale, grid.granularity, shape, layout)),
        ranges_(detail::numbers_in_memory(grid.amax, grid.granularity, shape, layout)),
        scale_(scales_.data<float>(scales_.layout())),
        amax_(ranges_.data<float>(ranges_.layout())),
        index_(map_.number_index()),
        // A kernel vector has up to 16 elements. It can read one number if no vector crosses a block border.
        unit_(map_.last.length % kVector == 0 && map_.last.size % kVector == 0 ? kVector : 1) {
    if (!inverse) return;
    inverses_.resize(static_cast<std::size_t>(scales_.numel()));
    // Exact: `inverse` is only set for power-of-two scales.
    std::transform(scale_, scale_ + scales_.numel(), inverses_.begin(),
                   [](float scale) { return scalar::div_(1.0f, scale); });
    scale_ = inverses_.data();
  }

  [[nodiscard]] ElementNumbers of(std::int64_t begin, std::int64_t end, bool with_amax, Scratch& s) const {
    const bool whole = (end - begin) % element_group == 0;  // otherwise a group extends beyond the last block
    if (index_ && (whole || map_.blocks() == 1)) return {scale_, amax_, begin, *index_};
    spread(scale_, begin, end, s.scale);
    if (with_amax) spread(amax_, begin, end, s.amax);
    constexpr detail::NumberIndex one_a_vector{std::countr_zero(std::uint64_t{kVector}), 0, 0};
    return {s.scale, s.amax, 0, unit_ == 1 ? one_each : one_a_vector};
  }

 private:
  /// Spreads the numbers. Numbers beyond the end are 1.
  void spread(const float* numbers, std::int64_t begin, std::int64_t end, float* out) const {
    const auto at = [&](std::int64_t i) { return out + (i - begin + unit_ - 1) / unit_; };
    map_.visit_runs(begin, end, [&](std::int64_t i, std::int64_t stop, std::int64_t j, std::int64_t step) {
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
  std::int64_t unit_;  // elements per spread number
  std::vector<float> inverses_;
};

/// Calls f(begin, end) for chunks of all elements, in parallel.
template <class F>
void visit_chunks(std::int64_t count, F&& f) {
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
  // Padding is 0: it gives code 0 and no NaN.
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
    // Only E2M1 has a kernel that packs. Other four-bit codes are packed in a second pass over the cached
    // chunk.
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

namespace {

/// Fills out.codes and, if defined, out.mask. Returns whether x had a NaN. `x` is f32.
bool quantize_blocks(const Tensor& x, QuantizedTensor& out) {
  if (x.numel() == 0) return false;
  // One significant bit and a unit of 1: all scales are powers of two, as in the MX formats.
  const bool inverse = out.grid.scale_bits == 1 && out.grid.unit == 1 && !out.grid.format.is_integer();
  const BlockNumbers numbers(out.grid, x.shape(), x.layout(), inverse);
  const ElementFormat format = element_format(out.grid.format, inverse);
  const auto* values = x.data<float>(x.layout());
  const Codes codes{static_cast<std::byte*>(out.codes.mutable_raw()), out.codes.dtype()};
  auto* mask = out.mask.defined() ? static_cast<std::uint8_t*>(out.mask.mutable_raw()) : nullptr;
  std::atomic<bool> nan{false};
  visit_chunks(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    if (quantize_chunk(values, begin, end, numbers, format, codes, mask))
      // Threads only ever set the flag, and the end of the parallel loop synchronizes.
      nan.store(true, std::memory_order_relaxed);
  });
  return nan.load();
}

template <class Out>
void decode_typed(const QuantizedTensor& x, bool scaled, Tensor& out) {
  const BlockNumbers numbers(x.grid, x.shape(), x.layout(), false);
  const ElementFormat format = element_format(x.grid.format);
  const float one = 1;
  auto* values = out.mutable_data<Out>(out.layout());
  const auto* bytes = static_cast<const std::byte*>(x.codes.raw());
  const DType dtype = x.codes.dtype();
  visit_chunks(out.numel(), [&](std::int64_t begin, std::int64_t end) {
    Scratch s;
    const std::int64_t count = end - begin, all = whole_groups(count);
    const ElementNumbers by =
        scaled ? numbers.of(begin, end, false, s) : ElementNumbers{&one, &one, 0, one_for_all};
    const void* from = bytes + byte_size(dtype, begin);
    if (all != count) {
      // Code 0 in the padding is a valid code of every format.
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

/// Writes the values of codes, multiplied by their scales if `scaled`, as f32 or rounded to bf16.
void decode_blocks(const QuantizedTensor& x, bool scaled, Tensor& out) {
  if (out.numel() == 0) return;
  out.dtype() == DType::bf16 ? decode_typed<bfloat16>(x, scaled, out) : decode_typed<float>(x, scaled, out);
}

CodeArray code_array(const Tensor& codes) { return {codes.raw(), codes.dtype()}; }

/// Returns the first element at or after `begin` whose mask bit starts a byte.
std::int64_t byte_start(std::int64_t begin, std::int64_t end) { return std::min(end, (begin + 7) / 8 * 8); }

struct QuantizeRun {
  const float* x;
  void* codes;
  std::uint8_t* mask;
  DType dtype;
  bool integer;

  bool scalar_run(std::int64_t begin, std::int64_t end, const GridRow& row) const {
    bool nan = false;
    for (std::int64_t i = begin; i < end; ++i) {
      const float v = x[i];
      nan |= scalar::is_nan_(v);
      const float code = integer ? scalar::quantize_code(v, row.scale, row.lower, row.upper)
                                 : scalar::quantize_e4m3(v, row.scale);
      store_code(codes, dtype, i, scalar::is_nan_(v) ? 0.0f : code);
      if (mask != nullptr) set_bit(mask, i, scalar::mask_closed(v, row.mask_lower, row.amax));
    }
    return nan;
  }
  template <class Code>
  bool vector_run(std::int64_t begin, std::int64_t end, const GridRow& row) const {
    const std::int64_t start = byte_start(begin, end);
    bool nan = scalar_run(begin, start, row);
    const std::int64_t done = quantize(x + start, end - start, row, static_cast<Code*>(codes) + start,
                                       mask != nullptr ? mask + start / 8 : nullptr, &nan);
    return scalar_run(start + done, end, row) || nan;
  }
  bool operator()(std::int64_t begin, std::int64_t end, const GridRow& row) const {
    if (integer && dtype == DType::i8) return vector_run<std::int8_t>(begin, end, row);
    if (integer && dtype == DType::u8) return vector_run<std::uint8_t>(begin, end, row);
    if (dtype == DType::f8_e4m3) return vector_run<E4m3>(begin, end, row);
    return scalar_run(begin, end, row);
  }
};

void decode_floats(const Tensor& codes, Tensor& out) {
  auto* values = out.mutable_data<float>(out.layout());
  visit_runs(codes.numel(), {1, codes.numel()}, [&](std::int64_t begin, std::int64_t end, std::int64_t) {
    dequantize(code_array(codes).from(begin), end - begin, 1.0f, values + begin);
  });
}

void decode_bf16(const Tensor& codes, Tensor& out) {
  FQ_CHECK(bit_width(codes.dtype()) == 8, "decode",
           "the codes are {}: only i8, u8 and f8_e4m3 convert to bf16", name(codes.dtype()));
  auto* values = out.mutable_data<bfloat16>(out.layout());
  visit_runs(codes.numel(), {1, codes.numel()}, [&](std::int64_t begin, std::int64_t end, std::int64_t) {
    decode(code_array(codes).from(begin), end - begin, values + begin);
  });
}

// Grids per tensor or along one axis: one row of grid numbers per channel.
bool quantize_channels(const Tensor& x, QuantizedTensor& out) {
  const int axis = detail::channel_axis(out.grid, x.shape(), "quantize");
  const auto rows = grid_rows(out.grid);
  auto* mask = static_cast<std::uint8_t*>(out.mask.defined() ? out.mask.mutable_raw() : nullptr);
  if (mask != nullptr) std::memset(mask, 0, static_cast<std::size_t>(out.mask.nbytes()));
  const QuantizeRun run{x.data<float>(x.layout()), out.codes.mutable_raw(), mask, out.codes.dtype(),
                        out.grid.format.is_integer()};
  std::atomic<bool> saw_nan{false};
  visit_runs(x.numel(), Channels::of(x.shape(), x.layout(), axis),
             [&](std::int64_t begin, std::int64_t end, std::int64_t channel) {
               if (run(begin, end, rows[static_cast<std::size_t>(channel)]))
                 saw_nan.store(true, std::memory_order_relaxed);
             });
  return saw_nan.load();
}

}  // namespace

void decode(const QuantizedTensor& x, Tensor& out) {
  if (detail::needs_block_kernels(x.grid, x.shape(), "decode")) return decode_blocks(x, false, out);
  out.dtype() == DType::bf16 ? decode_bf16(x.codes, out) : decode_floats(x.codes, out);
}

void quantize(std::span<const detail::QuantizeCall> calls) {
  for (const auto& [x, out, nan_text] : calls) {
    const bool blocks = detail::needs_block_kernels(out.grid, x.shape(), "quantize");
    if (blocks ? quantize_blocks(x, out) : quantize_channels(x, out)) throw NumericError(nan_text);
  }
}

void dequantize(const QuantizedTensor& x, Tensor& out) {
  if (detail::needs_block_kernels(x.grid, x.shape(), "dequantize")) return decode_blocks(x, true, out);
  const auto rows = grid_rows(x.grid);
  const auto view =
      Channels::of(x.shape(), x.layout(), detail::channel_axis(x.grid, x.shape(), "dequantize"));
  const CodeArray codes = code_array(x.codes);
  auto* values = out.mutable_data<float>(out.layout());
  visit_runs(out.numel(), view, [&](std::int64_t begin, std::int64_t end, std::int64_t channel) {
    const float scale = rows[static_cast<std::size_t>(channel)].scale;
    // For short runs, for example one element per channel, the dispatch costs more than the work.
    if (end - begin >= 8) return dequantize(codes.from(begin), end - begin, scale, values + begin);
    for (std::int64_t i = begin; i < end; ++i)
      values[i] = scalar::dequantize_code(load_code(codes.data, codes.dtype, i), scale);
  });
}

void apply_mask(const Tensor& dy, const Tensor& mask, Tensor& out) {
  const auto* bits = static_cast<const std::uint8_t*>(mask.raw());
  const auto* in = static_cast<const std::byte*>(dy.raw());
  auto* dx = static_cast<std::byte*>(out.mutable_raw());
  const int bytes = bit_width(dy.dtype()) / 8;
  const bool stream = beyond_cache(out.nbytes());
  // A multiple of 64: blocks begin on whole words of the mask.
  constexpr std::int64_t block = 16384;
  const std::int64_t count = dy.numel();
#pragma omp parallel if (count > 4 * block)
  {
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; i += block)
      apply_mask(in + i * bytes, bits + i / 8, std::min(block, count - i), bytes, dx + i * bytes, stream);
    // Each thread makes its own streamed stores visible before the region ends.
    if (stream) flush_writes();
  }
}

namespace {

constexpr std::int64_t kScaleChunk = 4096;

}  // namespace

void make_scales(Grid& grid, const detail::ScaleRule& rule, const std::string&) {
  auto* ranges = grid.amax.mutable_data<float>(grid.amax.layout());
  auto* scales = grid.scale.mutable_data<float>(grid.scale.layout());
  const std::int64_t count = grid.amax.numel(), chunks = (count + kScaleChunk - 1) / kScaleChunk;
  bool good = true;
#pragma omp parallel for schedule(static) reduction(&& : good) if (chunks > 4)
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t begin = c * kScaleChunk, size = std::min(kScaleChunk, count - begin);
    good = range_scales(rule, ranges + begin, size, scales + begin) && good;
  }
  // The vector kernel reports only that a range is invalid. This loop finds it and throws.
  if (good) return;
  for (std::int64_t i = 0; i < count; ++i) detail::check_amax(ranges[i], grid.name);
}

void open_ranges(const Tensor& amax, Tensor& out) {
  const auto* from = amax.data<float>();
  auto* to = out.mutable_data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i) to[i] = detail::open_range(from[i]);
}

}  // namespace fq::cpu
