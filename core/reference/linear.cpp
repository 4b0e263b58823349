#include "fakequant/core/reference/linear.h"

#include "fakequant/core/check.h"
#include "fakequant/core/formulas.h"
#include "fakequant/core/packed.h"
#include "fakequant/core/reference/float_blocks.h"

namespace fq::detail {

bool is_minifloat(DType codes) noexcept {
  return codes == DType::f8_e4m3 || codes == DType::f8_e5m2 || codes == DType::f4_e2m1;
}

IntFormat integer_format(DType codes) noexcept {
  const bool is_unsigned =
      codes == DType::u2 || codes == DType::u4 || codes == DType::u8 || codes == DType::u16;
  return {bit_width(codes), is_unsigned, false};
}

namespace {

/// Scale and zero point of every block as f32.
struct Grid {
  Tensor scales, zero_points;

  explicit Grid(const LinearGrid& grid)
      : scales(values_of(grid.scale)),
        zero_points(grid.zero_point.defined() && !is_minifloat(grid.zero_point.dtype())
                        ? values_of(grid.zero_point)
                        : Tensor::zeros(grid.scale.shape())) {}
  static Tensor values_of(const Tensor& t) {
    return (is_storage_only(t.dtype()) && bit_width(t.dtype()) < 8 ? unpack_codes(t) : t).to(DType::f32);
  }
  [[nodiscard]] const float* scale(std::int64_t j) const { return scales.data<float>() + j; }
  [[nodiscard]] const float* zero_point(std::int64_t j) const { return zero_points.data<float>() + j; }
};

/// Calls f with 1 where every element has its own scale, with 0 where they share one.
template <class F>
void visit_step(std::int64_t step, F&& f) {
  if (step == 1)
    f(std::integral_constant<std::int64_t, 1>{});
  else
    f(std::integral_constant<std::int64_t, 0>{});
}

template <class Code>
void integer_codes(const Tensor& x, const LinearGrid& blocks, const IntFormat& format, Code* out) {
  const Grid grid(blocks);
  const auto lower = static_cast<float>(format.lower()), upper = static_cast<float>(format.upper());
  for_chunks(x, blocks.block, [&](const float* in, auto begin, auto count, auto j, auto step) {
    const float *s = grid.scale(j), *z = grid.zero_point(j);
    Code* __restrict to = out + begin;
    visit_step(step, [&](auto each) {
      const float scale = *s, zero = *z;
      for (std::int64_t k = 0; k < count; ++k)
        to[k] = static_cast<Code>(static_cast<int>(
            scalar::linear_code(in[k], each ? s[k] : scale, each ? z[k] : zero, lower, upper)));
    });
  });
}

void minifloat_codes(const Tensor& x, const LinearGrid& blocks, const Minifloat& format, std::uint8_t* out) {
  const Tensor scales = Grid::values_of(blocks.scale);
  for_chunks(x, blocks.block, [&](const float* in, auto begin, auto count, auto j, auto step) {
    const float* s = scales.data<float>() + j;
    const Minifloat grid = format;
    std::uint8_t* __restrict to = out + begin;
    visit_step(step, [&](auto each) {
      const float scale = *s;
      for (std::int64_t k = 0; k < count; ++k)
        to[k] = grid.encode(grid.round(scalar::div_(in[k], each ? s[k] : scale)));
    });
  });
}

void fill_codes(const Tensor& x, const LinearGrid& grid, DType codes, bool saturate, Tensor& out) {
  if (is_minifloat(codes)) {
    const Minifloat format = minifloat_of(codes);
    const bool clamped = saturate || codes == DType::f4_e2m1;
    return minifloat_codes(x, grid, clamped ? format : format.overflowing(),
                           static_cast<std::uint8_t*>(out.mutable_raw()));
  }
  const IntFormat format = integer_format(codes);
  visit_dtype(out.dtype(), "linear_quantize", [&]<class Code>(Code) {
    if constexpr (std::is_integral_v<Code> && sizeof(Code) <= 2)
      integer_codes(x, grid, format, out.mutable_data<Code>());
  });
}

}  // namespace

Tensor linear_quantize(const Tensor& x, const LinearGrid& grid, DType codes, bool saturate) {
  if (x.device().is_meta()) return Tensor::empty(x.shape(), codes, x.device());
  const bool packed = bit_width(codes) < 8, bytes = is_minifloat(codes) || integer_format(codes).is_unsigned;
  Tensor out = Tensor::empty(x.shape(), !packed ? codes : bytes ? DType::u8 : DType::i8);
  fill_codes(x.to(Layout::row_major), grid, codes, saturate, out);
  return packed ? pack_codes(out, codes) : out;
}

Tensor linear_dequantize(const Tensor& codes, const LinearGrid& blocks, DType dtype) {
  Tensor out = Tensor::empty(codes.shape(), dtype, codes.device());
  if (codes.device().is_meta()) return out;
  const Grid grid(blocks);
  map_blocks(codes.to(Layout::row_major), blocks.block, out,
             [&](const float* in, float* __restrict to, auto count, auto j, auto step) {
               const float *s = grid.scale(j), *z = grid.zero_point(j);
               visit_step(step, [&](auto each) {
                 const float scale = *s, zero = *z;
                 for (std::int64_t k = 0; k < count; ++k)
                   to[k] = scalar::linear_value(in[k], each ? s[k] : scale, each ? z[k] : zero);
               });
             });
  return out;
}

Shape linear_block(const Shape& x, const Shape& scale, int axis, const char* function) {
  if (numel(scale) == 1 && scale.size() < 2) return x;
  FQ_CHECK(scale.size() == 1, function,
           "the scale is {}: give one number, or a list with one for each index of an axis",
           to_string(scale));
  const auto kept = static_cast<std::size_t>(normalize_axis(axis, static_cast<int>(x.size()), function));
  FQ_CHECK(scale[0] == x[kept], function,
           "the scale has {} elements, axis {} of the input {} has {}: give one for each", scale[0], kept,
           to_string(x), x[kept]);
  Shape block = x;
  block[kept] = 1;
  return block;
}

Shape rows_block(const Shape& x, const Shape& scale, const char* function) {
  FQ_CHECK(x.size() == 2, function, "the scale {} is one of blocks and the input {}: blocks need 2 axes",
           to_string(scale), to_string(x));
  FQ_CHECK(scale[0] > 0 && x[0] % scale[0] == 0, function,
           "the input {} does not divide into {} blocks along axis 0: choose a divisor of {}", to_string(x),
           scale[0], x[0]);
  FQ_CHECK(scale[1] == x[1], function, "the scale {} has {} columns, the input {} has {}: give one for each",
           to_string(scale), scale[1], to_string(x), x[1]);
  return {std::max<std::int64_t>(x[0] / scale[0], 1), 1};
}

void check_dtype(DType dtype, std::initializer_list<DType> allowed, std::string_view what,
                 const char* function) {
  std::string names;
  for (const DType each : allowed) {
    if (each == dtype) return;
    names.append(names.empty() ? "" : ", ").append(name(each));
  }
  throw ArgumentError(fmt::format("[{}] the {} is {}: use one of {}", function, what, name(dtype), names));
}

}  // namespace fq::detail
