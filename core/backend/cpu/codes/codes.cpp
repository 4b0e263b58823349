#include <atomic>

#include "fakequant/core/backend/cpu/codes/block_codes.h"
#include "fakequant/core/backend/cpu/codes/gradient_kernels.h"
#include "fakequant/core/backend/cpu/codes/grid.h"
#include "fakequant/core/backend/cpu/vector/cache.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/quantizer_checks.h"

namespace fq::cpu {

namespace {

CodeArray codes_of(const Tensor& codes) { return {codes.raw(), codes.dtype()}; }

/// First element at or after `begin` whose mask bit starts a byte.
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
  for_runs(codes.numel(), {1, codes.numel()}, [&](std::int64_t begin, std::int64_t end, std::int64_t) {
    dequantize(codes_of(codes).from(begin), end - begin, 1.0f, values + begin);
  });
}

void decode_bf16(const Tensor& codes, Tensor& out) {
  FQ_CHECK(bit_width(codes.dtype()) == 8, "decode", "the codes are {}: those of i8, u8 or f8_e4m3 are bf16",
           name(codes.dtype()));
  auto* values = out.mutable_data<bfloat16>(out.layout());
  for_runs(codes.numel(), {1, codes.numel()}, [&](std::int64_t begin, std::int64_t end, std::int64_t) {
    decode(codes_of(codes).from(begin), end - begin, values + begin);
  });
}

bool quantize_channels(const Tensor& x, QuantizedTensor& out) {
  const int axis = detail::channel_axis(out.grid, x.shape(), "quantize");
  const auto rows = grid_rows(out.grid);
  auto* mask = static_cast<std::uint8_t*>(out.mask.defined() ? out.mask.mutable_raw() : nullptr);
  if (mask != nullptr) std::memset(mask, 0, static_cast<std::size_t>(out.mask.nbytes()));
  const QuantizeRun run{x.data<float>(x.layout()), out.codes.mutable_raw(), mask, out.codes.dtype(),
                        out.grid.format.is_integer()};
  std::atomic<bool> saw_nan{false};
  for_runs(x.numel(), Channels::of(x.shape(), x.layout(), axis),
           [&](std::int64_t begin, std::int64_t end, std::int64_t channel) {
             if (run(begin, end, rows[static_cast<std::size_t>(channel)]))
               saw_nan.store(true, std::memory_order_relaxed);
           });
  return saw_nan.load();
}

}  // namespace

void decode(const QuantizedTensor& x, Tensor& out) {
  if (detail::in_blocks(x.grid, x.shape(), "decode")) return decode_blocks(x, false, out);
  out.dtype() == DType::bf16 ? decode_bf16(x.codes, out) : decode_floats(x.codes, out);
}

void quantize(std::span<const detail::QuantizeCall> calls) {
  for (const auto& [x, out, nan_text] : calls) {
    const bool blocks = detail::in_blocks(out.grid, x.shape(), "quantize");
    if (blocks ? quantize_blocks(x, out) : quantize_channels(x, out)) throw NumericError(nan_text);
  }
}

void dequantize(const QuantizedTensor& x, Tensor& out) {
  if (detail::in_blocks(x.grid, x.shape(), "dequantize")) return decode_blocks(x, true, out);
  const auto rows = grid_rows(x.grid);
  const auto view =
      Channels::of(x.shape(), x.layout(), detail::channel_axis(x.grid, x.shape(), "dequantize"));
  const CodeArray codes = codes_of(x.codes);
  auto* values = out.mutable_data<float>(out.layout());
  for_runs(out.numel(), view, [&](std::int64_t begin, std::int64_t end, std::int64_t channel) {
    const float scale = rows[static_cast<std::size_t>(channel)].scale;
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
  constexpr std::int64_t block = 16384;
  const std::int64_t count = dy.numel();
#pragma omp parallel if (count > 4 * block)
  {
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; i += block)
      apply_mask(in + i * bytes, bits + i / 8, std::min(block, count - i), bytes, dx + i * bytes, stream);
    if (stream) flush_writes();
  }
}

}  // namespace fq::cpu
