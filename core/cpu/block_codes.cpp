#include "fakequant/core/cpu/block_codes.h"

#include <cstring>
#include <vector>

#include "fakequant/core/check.h"
#include "fakequant/core/convert.h"
#include "fakequant/core/cpu/grid.h"
#include "fakequant/core/minifloat.h"
#include "fakequant/core/reference/blocks.h"

namespace fq::cpu {
namespace {

/// Calls f(begin, end, row) for runs of elements of one scale.
template <class F>
void for_rows(const QuantSpec& spec, const Shape& shape, F&& f) {
  const auto rows = grid_rows(spec);
  const auto row = [&](std::int64_t j) { return rows[static_cast<std::size_t>(j)]; };
  detail::for_block_runs(shape, spec.granularity.block_shape(shape),
                         [&](std::int64_t begin, std::int64_t end, std::int64_t j, std::int64_t step) {
                           if (step == 0) return f(begin, end, row(j));
                           for (std::int64_t i = begin; i < end; ++i) f(i, i + 1, row(j + i - begin));
                         });
}

/// Whole numbers as Code; returns whether there was a NaN, whose code is 0.
template <class Code>
bool integer_run(const float* x, std::int64_t count, const GridRow& row, Code* codes) {
  int nan = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool bad = scalar::is_nan_(x[i]);
    nan |= int{bad};
    const float code = scalar::quantize_code(x[i], row.scale, row.lower, row.upper);
    codes[i] = static_cast<Code>(bad ? 0.0f : code);
  }
  return nan != 0;
}

bool float_run(const float* x, std::int64_t count, const GridRow& row, const Minifloat& format,
               std::uint8_t* codes) {
  int nan = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool bad = scalar::is_nan_(x[i]);
    nan |= int{bad};
    codes[i] = format.encode(bad ? 0.0f : format.round(scalar::div_(x[i], row.scale)));
  }
  return nan != 0;
}

void mask_run(const float* x, std::int64_t begin, std::int64_t end, const GridRow& row, std::uint8_t* mask) {
  for (std::int64_t i = begin; i < end; ++i)
    set_bit(mask, i, scalar::mask_closed(x[i], row.mask_lower, row.amax));
}

void pack(const std::vector<std::uint8_t>& codes, Tensor& out) {
  auto* bytes = static_cast<std::uint8_t*>(out.mutable_raw());
  std::memset(bytes, 0, static_cast<std::size_t>(out.nbytes()));
  for (std::size_t i = 0; i < codes.size(); ++i)
    bytes[i / 2] = static_cast<std::uint8_t>(bytes[i / 2] | (codes[i] << (4 * (i % 2))));
}

std::uint8_t code_at(const std::uint8_t* bytes, bool packed, std::int64_t i) {
  return packed ? static_cast<std::uint8_t>(bytes[i / 2] >> (4 * (i % 2)) & 15) : bytes[i];
}

bool integer_codes(const Tensor& x, QuantizedTensor& out) {
  bool nan = false;
  const float* v = x.data<float>();
  detail::visit_dtype(out.codes.dtype(), "quantize", [&]<class Code>(Code) {
    auto* codes = out.codes.mutable_data<Code>();
    for_rows(out.spec, x.shape(), [&](std::int64_t begin, std::int64_t end, const GridRow& row) {
      nan = integer_run(v + begin, end - begin, row, codes + begin) || nan;
    });
  });
  return nan;
}

bool float_codes(const Tensor& x, QuantizedTensor& out) {
  bool nan = false;
  const float* v = x.data<float>();
  const Minifloat format = Minifloat::of(out.spec.format.floating());
  const bool packed = bit_width(out.codes.dtype()) == 4;
  std::vector<std::uint8_t> unpacked(static_cast<std::size_t>(packed ? x.numel() : 0));
  auto* codes = packed ? unpacked.data() : static_cast<std::uint8_t*>(out.codes.mutable_raw());
  for_rows(out.spec, x.shape(), [&](std::int64_t begin, std::int64_t end, const GridRow& row) {
    nan = float_run(v + begin, end - begin, row, format, codes + begin) || nan;
  });
  if (packed) pack(unpacked, out.codes);
  return nan;
}

}  // namespace

bool in_blocks(const QuantSpec& spec, const Shape& shape, std::string_view function) {
  const bool other = !spec.format.is_integer() && spec.format.floating() != FloatFormat{4, 3};
  const bool one =
      spec.granularity.is_per_tensor() || spec.granularity.single_axis(static_cast<int>(shape.size())) >= 0;
  if (one && !other) return false;
  const std::int64_t blocks = numel(spec.granularity.scale_shape(shape));
  FQ_CHECK(spec.amax.numel() == blocks || numel(shape) == 0, function,
           "amax of '{}' has {} elements, the input {} has {} blocks: give one amax per block", spec.name,
           spec.amax.numel(), to_string(shape), blocks);
  return true;
}

bool quantize_blocks(const Tensor& x, QuantizedTensor& out) {
  const bool nan = out.spec.format.is_integer() ? integer_codes(x, out) : float_codes(x, out);
  if (!out.mask.defined()) return nan;
  auto* mask = static_cast<std::uint8_t*>(out.mask.mutable_raw());
  std::memset(mask, 0, static_cast<std::size_t>(out.mask.nbytes()));
  for_rows(out.spec, x.shape(), [&](std::int64_t begin, std::int64_t end, const GridRow& row) {
    mask_run(x.data<float>(), begin, end, row, mask);
  });
  return nan;
}

void decode_blocks(const QuantizedTensor& x, bool scaled, Tensor& out) {
  auto* values = out.mutable_data<float>();
  const DType dtype = x.codes.dtype();
  const bool integer = x.spec.format.is_integer(), packed = bit_width(dtype) == 4;
  const auto* bytes = static_cast<const std::uint8_t*>(x.codes.raw());
  std::vector<float> table(256);
  if (!integer)
    for (std::size_t code = 0; code < table.size(); ++code)
      table[code] = Minifloat::of(x.spec.format.floating()).decode(static_cast<std::uint8_t>(code));
  for_rows(x.spec, x.shape(), [&](std::int64_t begin, std::int64_t end, const GridRow& row) {
    const float scale = scaled ? row.scale : 1.0f;
    for (std::int64_t i = begin; i < end; ++i)
      values[i] = scalar::dequantize_code(
          integer ? load_code(bytes, dtype, i) : table[code_at(bytes, packed, i)], scale);
  });
}

}  // namespace fq::cpu
