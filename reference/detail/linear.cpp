#include "fakequant/reference/detail/linear.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/detail/float_blocks.h"
#include "fakequant/reference/detail/through_host.h"

namespace fq::detail {

bool is_minifloat(DType codes) noexcept {
  return codes == DType::f8_e4m3 || codes == DType::f8_e5m2 || codes == DType::f4_e2m1;
}

// ONNX integers use their full range: narrow_range is false.
IntFormat integer_format(DType codes) noexcept {
  const bool is_unsigned =
      codes == DType::u2 || codes == DType::u4 || codes == DType::u8 || codes == DType::u16;
  return {bit_width(codes), is_unsigned, false};
}

namespace {

// Scale and zero point of every block as f32, on the host. All are exact in f32: zero points have at most 16
// bits.
struct Grid {
  Tensor scales, zero_points;
  bool has_zero_points;

  explicit Grid(const LinearGrid& grid)
      : scales(float_values(grid.scale)),
        // Float zero points can only be 0.
        has_zero_points(grid.zero_point.defined() && !is_minifloat(grid.zero_point.dtype())) {
    zero_points = has_zero_points ? float_values(grid.zero_point) : Tensor::zeros(grid.scale.shape());
  }
  static Tensor float_values(const Tensor& t) {
    const Tensor own = t.to(Device::cpu());
    return (bit_width(t.dtype()) < 8 ? unpack_codes(own) : own).to(Layout::row_major).to(DType::f32);
  }
  [[nodiscard]] const float* scale(std::int64_t j) const { return scales.data<float>() + j; }
  [[nodiscard]] const float* zero_point(std::int64_t j) const { return zero_points.data<float>() + j; }
};

constexpr std::int64_t kShortRun = 128;  // below it, reading a scale an element costs less than a call a run

// Writes the scale of each of `count` elements: one for all (step 0), or consecutive ones.
void write_out(const float* from, std::int64_t step, std::int64_t count, float* to) {
  if (step == 0)
    std::fill_n(to, count, *from);
  else
    std::copy_n(from, count, to);
}

// Calls f(begin, count, scale, zero_point, step) for chunks of elements in order; element k has scale[k *
// step]. Short runs (blocks along an inner axis) are joined into chunks with a scale per element.
template <class F>
void visit_scaled_chunks(const Shape& x, const Shape& block, const Grid& grid, F&& f) {
  std::array<float, chunk_elements> scales, zero_points{};
  std::int64_t start = 0, joined = 0;
  const auto flush = [&] {
    if (joined > 0) f(start, joined, scales.data(), zero_points.data(), std::int64_t{1});
    joined = 0;
  };
  visit_block_runs(x, block, [&](auto begin, auto end, auto j, auto step) {
    const auto length = end - begin;
    // Before a long run, and when the buffer is full: chunks keep the order of elements.
    if (length >= kShortRun || joined + length > chunk_elements) flush();
    if (length >= kShortRun) {
      for (auto i = begin; i < end; i += chunk_elements) {
        const auto at = j + (i - begin) * step;
        f(i, std::min(chunk_elements, end - i), grid.scale(at), grid.zero_point(at), step);
      }
      return;
    }
    if (joined == 0) start = begin;
    write_out(grid.scale(j), step, length, scales.data() + joined);
    if (grid.has_zero_points) write_out(grid.zero_point(j), step, length, zero_points.data() + joined);
    joined += length;
  });
  flush();
}

/// y[k] = f(in[k], scale, zero point), vectorised for one scale and for one an element.
template <class T, class F>
void map_scaled(const float* in, std::int64_t count, const float* scale, const float* zero_point,
                std::int64_t step, T* __restrict y, F f) {
  if (step == 0) {
    const float s = *scale, z = *zero_point;
    for (std::int64_t k = 0; k < count; ++k) y[k] = f(in[k], s, z);
  } else {
    for (std::int64_t k = 0; k < count; ++k) y[k] = f(in[k], scale[k], zero_point[k]);
  }
}

/// out[i] = f(x[i], scale, zero point)
template <class Code, class F>
void write_codes(const Tensor& x, const LinearGrid& blocks, Code* out, F&& f) {
  std::array<float, chunk_elements> buffer;
  visit_scaled_chunks(
      x.shape(), blocks.block, Grid(blocks), [&](auto begin, auto count, auto* s, auto* z, auto step) {
        map_scaled(read_floats(x, begin, count, buffer.data()), count, s, z, step, out + begin, f);
      });
}

void fill_codes(const Tensor& x, const LinearGrid& grid, DType codes, bool saturate, Tensor& out) {
  if (is_minifloat(codes)) {
    const Minifloat exact = dtype_minifloat(codes);
    // Without saturation the grid has one more step, whose code is infinity or NaN. E2M1 has neither.
    const Minifloat format = saturate || codes == DType::f4_e2m1 ? exact : exact.overflowing();
    const auto encode = [format](float quotient) { return format.encode(format.round(quotient)); };
    auto* to = static_cast<std::uint8_t*>(out.mutable_raw());
    if (codes == DType::f4_e2m1 && grid.zero_point.defined())  // -0 + 0 is +0
      return write_codes(x, grid, to,
                         [=](float v, float s, float z) { return encode(scalar::div_(v, s) + z); });
    return write_codes(x, grid, to, [=](float v, float s, float) { return encode(scalar::div_(v, s)); });
  }
  const IntFormat format = integer_format(codes);
  const auto lower = static_cast<float>(format.lower()), upper = static_cast<float>(format.upper());
  visit_dtype(out.dtype(), "linear_quantize", [&]<class Code>(Code) {
    if constexpr (std::is_integral_v<Code> && sizeof(Code) <= 2)
      write_codes(x, grid, out.mutable_data<Code>(), [=](float v, float s, float z) {
        return static_cast<Code>(static_cast<int>(scalar::linear_code(v, s, z, lower, upper)));
      });
  });
}

}  // namespace

Tensor linear_quantize(const Tensor& x, const LinearGrid& grid, DType codes, bool saturate) {
  if (needs_host(x)) return on_host(linear_quantize, x, grid, codes, saturate);
  if (x.device().is_meta()) return Tensor::empty(x.shape(), codes, x.device());
  // Codes below 8 bits are computed one per byte and packed at the end.
  const bool packed = bit_width(codes) < 8, bytes = is_minifloat(codes) || integer_format(codes).is_unsigned;
  Tensor out = Tensor::empty(x.shape(), !packed ? codes : bytes ? DType::u8 : DType::i8);
  fill_codes(x.to(Layout::row_major), grid, codes, saturate, out);
  return packed ? pack_codes(out, codes) : out;
}

Tensor linear_dequantize(const Tensor& codes, const LinearGrid& blocks, DType dtype) {
  if (needs_host(codes)) return on_host(linear_dequantize, codes, blocks, dtype);
  Tensor out = Tensor::empty(codes.shape(), dtype, codes.device());
  if (codes.device().is_meta()) return out;
  const Tensor rows = codes.to(Layout::row_major);
  std::array<float, chunk_elements> inputs, results;
  void* y = out.mutable_raw();
  visit_scaled_chunks(codes.shape(), blocks.block, Grid(blocks),
                      [&](auto begin, auto count, auto* s, auto* z, auto step) {
                        float* to = dtype == DType::f32 ? static_cast<float*>(y) + begin : results.data();
                        map_scaled(read_floats(rows, begin, count, inputs.data()), count, s, z, step, to,
                                   scalar::linear_value<float>);
                        if (dtype != DType::f32) write_floats(to, count, dtype, y, begin);
                      });
  return out;
}

// A single scale is per tensor for any axis (golden/README, onnx.h5).
Shape linear_block(const Shape& x, const Shape& scale, int axis, const char* function) {
  if (numel(scale) == 1 && scale.size() < 2) return x;
  FQ_CHECK(scale.size() == 1, function,
           "the scale is {}: use one number, or a list with one for each index of an axis", to_string(scale));
  const auto kept = static_cast<std::size_t>(normalize_axis(axis, static_cast<int>(x.size()), function));
  FQ_CHECK(scale[0] == x[kept], function,
           "the scale has {} elements, axis {} of the input {} has {}: use one for each", scale[0], kept,
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
  FQ_CHECK(scale[1] == x[1], function, "the scale {} has {} columns, the input {} has {}: use one for each",
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
