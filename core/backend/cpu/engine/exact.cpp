#include "fakequant/core/backend/cpu/engine/exact.h"

#include <algorithm>
#include <array>
#include <utility>

#include <dnnl_version.h>

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/integer_products.h"
#include "fakequant/core/backend/exact_check.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"

namespace fq::cpu {
namespace {

thread_local std::optional<ExactType> forced;  // read at the start of a product, not in its tasks

// Forcing the type avoids a call of exact_type_works, which is still being initialized.
bool probe(ExactType type) {
  const ForceExactType only(type);
  const auto gemm = [](auto... arguments) { exact_gemm(arguments...); };
  const auto conv = [](const ConvShape& shape, auto... arguments) { exact_conv(shape, arguments...); };
  return detail::why_sums_are_wrong({gemm, conv}).empty();
}

}  // namespace

std::string_view name(ExactType type) noexcept {
  constexpr std::array<std::string_view, 3> names{"s8", "bf16", "f32"};
  return names[static_cast<std::size_t>(type)];
}

bool exact_type_works(ExactType type) {
  static const std::array<bool, 3> works{probe(ExactType::s8), probe(ExactType::bf16), true};
  return works[static_cast<std::size_t>(type)];
}

std::optional<ExactType> forced_exact_type() noexcept { return forced; }

ExactType best_exact_type() {
  if (forced) return *forced;
  if (exact_type_works(ExactType::s8)) return ExactType::s8;
  return exact_type_works(ExactType::bf16) ? ExactType::bf16 : ExactType::f32;
}

ForceExactType::ForceExactType(ExactType type) : ScopedValue(forced, type) {}

namespace {

template <class Code, class Value>
void decode_columns(const Code* codes, const CodeColumns& s, Value* out) {
  const std::int64_t kept = s.end - s.begin;
#pragma omp parallel for schedule(static) if (s.rows * s.groups * kept > 65536)
  for (std::int64_t r = 0; r < s.rows; ++r)
    for (std::int64_t g = 0; g < s.groups; ++g) {
      const Code* from = codes + (r * s.groups + g) * s.width + s.begin;
      Value* to = out + (r * s.groups + g) * kept;
      // Exact in all types: bf16 represents integers of up to 256 in magnitude.
      for (std::int64_t i = 0; i < kept; ++i) to[i] = static_cast<Value>(static_cast<float>(from[i]));
    }
}

/// Reshapes whole rows, which may be cut anywhere: one long row would be a single task.
CodeColumns balanced(CodeColumns s) {
  constexpr std::int64_t piece = 4096;
  const std::int64_t count = s.rows * s.groups * s.width;
  if (s.begin != 0 || s.end != s.width || count % piece != 0) return s;
  return {count / piece, 1, piece, 0, piece};
}

}  // namespace

std::vector<Part> exact_parts(std::int64_t channels, std::int64_t taps, std::int64_t largest) {
  // A part has at most `most` products, so its sum is at most 2^24 in magnitude. If one channel has more taps
  // than that, its kernel is split, too.
  const std::int64_t most = std::max<std::int64_t>(exact_limit / std::max<std::int64_t>(largest, 1), 1);
  const std::int64_t step = std::max<std::int64_t>(most / std::max<std::int64_t>(taps, 1), 1);
  const std::int64_t tap_step = std::min(taps, most);
  std::vector<Part> parts;
  for (std::int64_t c = 0; c < channels; c += step)
    for (std::int64_t p = 0; p < taps; p += tap_step)
      parts.push_back({c, std::min(c + step, channels), p, std::min(p + tap_step, taps)});
  return parts;
}

Tensor code_columns(const Codes& codes, const CodeColumns& columns, DType dtype) {
  const CodeColumns s = balanced(columns);
  Tensor out = Tensor::empty({s.rows * s.groups * (s.end - s.begin)}, dtype);
  detail::visit_dtype(dtype, "exact", [&]<class Value>(Value) {
    if constexpr (std::is_same_v<Value, float> || std::is_same_v<Value, bfloat16> || sizeof(Value) == 1) {
      if (codes.dtype == DType::u8)
        decode_columns(static_cast<const std::uint8_t*>(codes.data), s, out.mutable_data<Value>());
      else
        decode_columns(static_cast<const std::int8_t*>(codes.data), s, out.mutable_data<Value>());
    }
  });
  return out;
}

void keep_taps(Tensor& kernels, std::int64_t taps, const Part& part) {
  if (part.p0 == 0 && part.p1 == taps) return;
  // A zero weight leaves the sum unchanged. The wasted work does not matter: a kernel must have more than 500
  // taps of full-range codes to be split.
  const std::int64_t size = bit_width(kernels.dtype()) / 8;
  auto* bytes = static_cast<char*>(kernels.mutable_raw());
  for (std::int64_t k = 0; k < kernels.numel(); k += taps) {
    std::fill(bytes + k * size, bytes + (k + part.p0) * size, char{0});
    std::fill(bytes + (k + part.p1) * size, bytes + (k + taps) * size, char{0});
  }
}

void add_part(const Tensor& part, bool first, std::int32_t* sums) {
  const std::int64_t count = part.numel();
  detail::visit_dtype(part.dtype(), "exact", [&]<class Value>(Value) {
    if constexpr (sizeof(Value) == 4) {
      const auto* values = part.data<Value>();
#pragma omp parallel for simd schedule(static) if (count > 65536)
      for (std::int64_t i = 0; i < count; ++i)
        // The conversion is exact: parts are whole numbers of at most 2^24.
        sums[i] = (first ? 0 : sums[i]) + static_cast<std::int32_t>(values[i]);
    }
  });
}

namespace {

// A product of two activations may have u8 codes as its second factor.
/// Returns the engine for these factors: s8 requires signed weights.
ExactType choose_exact_type(const Codes& w) {
  const ExactType best = best_exact_type();
  if (best != ExactType::s8 || w.dtype == DType::i8) return best;
  return exact_type_works(ExactType::bf16) ? ExactType::bf16 : ExactType::f32;
}

/// Returns whether to use int16 products: they are the fastest exact products for small sizes, and replace
/// wrong 8-bit products.
bool use_int16_products(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t few = 1 << 16;
  if (forced_exact_type()) return false;
  return best_exact_type() == ExactType::f32 || m * n * k <= few;
}

/// Returns the type that an engine multiplies: code values, or the codes themselves.
DType value_type(ExactType type, const Codes& codes) {
  if (type == ExactType::s8) return codes.dtype;
  return type == ExactType::bf16 ? DType::bf16 : DType::f32;
}

// Bound of the sum: every product is at most x.largest * w.largest.
bool fit_f32(const Codes& x, const Codes& w, std::int64_t length) {
  return length * x.largest * w.largest <= exact_limit;
}

/// Returns whether the sums need no parts. u8 sums are exact; oneDNN corrects s8 sums in f32.
bool sums_are_whole(ExactType type, const Codes& x, const Codes& w, std::int64_t length) {
  return type == ExactType::s8 && (x.dtype == DType::u8 || fit_f32(x, w, length));
}

/// Returns whether the sums of a convolution need no parts. With few channels, AMX has a separate kernel,
/// which converts u8 sums to f32, too. In oneDNN 3 convolutions with one tap use it as well.
bool sums_are_whole(ExactType type, const Codes& x, const Codes& w, std::int64_t channels,
                    std::int64_t taps) {
  constexpr std::int64_t few = 16;
  const bool by_f32 = channels < few || (DNNL_VERSION_MAJOR > 2 && taps == 1 && tiles_allowed());
  return sums_are_whole(type, x, w, channels * taps) && (!by_f32 || fit_f32(x, w, channels * taps));
}

template <class Sum, class F>
void add_parts(const std::vector<Part>& parts, std::int64_t count, std::int32_t* sums, F&& product) {
  // All parts share one array. A part overwrites it.
  Tensor values = Tensor::empty({count}, cpp_dtype<Sum>);
  bool first = true;
  for (const Part& part : parts) {
    product(part, values.mutable_data<Sum>());
    add_part(values, first, sums);
    first = false;
  }
  if (first) std::fill_n(sums, count, 0);
}

/// Calls `product(part, values)` for each part and adds the results. `values` are [count] sums to fill, i32
/// in the s8 engine and f32 in the others.
template <class F>
void sum_parts(ExactType type, const std::vector<Part>& parts, std::int64_t count, std::int32_t* sums,
               F&& product) {
  type == ExactType::s8 ? add_parts<std::int32_t>(parts, count, sums, product)
                        : add_parts<float>(parts, count, sums, product);
}

}  // namespace

void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                std::int32_t* sums) {
  if (use_int16_products(m, n, k)) return int16_products(m, n, k, x, w, sums);
  const ExactType type = choose_exact_type(w);
  if (sums_are_whole(type, x, w, k))
    return gemm({x.data, x.dtype, m, k}, {w.data, w.dtype, k, n, true}, sums);
  const DType left = value_type(type, x), right = value_type(type, w);
  sum_parts(type, exact_parts(k, 1, x.largest * w.largest), m * n, sums, [&](const Part& part, auto* out) {
    const std::int64_t length = part.c1 - part.c0;
    const Tensor a = code_columns(x, {m, 1, k, part.c0, part.c1}, left);
    const Tensor b = code_columns(w, {n, 1, k, part.c0, part.c1}, right);
    gemm({a.raw(), left, m, length}, {b.raw(), right, length, n, true}, out);
  });
}

void exact_batch(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x,
                 const Codes& w, std::int32_t* sums) {
  if (use_int16_products(m, n, k)) return int16_products(batch, m, n, k, x, w, sums);
  if (sums_are_whole(choose_exact_type(w), x, w, k))
    return gemm({x.data, x.dtype, m, k}, {w.data, w.dtype, k, n, true}, sums, batch);
  for (std::int64_t i = 0; i < batch; ++i)
    exact_gemm(m, n, k, {static_cast<const char*>(x.data) + i * m * k, x.dtype, x.largest},
               {static_cast<const char*>(w.data) + i * n * k, w.dtype, w.largest}, sums + i * m * n);
}

void exact_conv(const ConvShape& s, const Codes& x, const Codes& w, std::int32_t* sums) {
  const ExactType type = choose_exact_type(w);
  if (type == ExactType::f32 && !forced_exact_type() && uses_patches(s))
    return convolve_patches(s, x, w, sums);
  const std::int64_t channels = s.c / s.groups, taps = s.kh * s.kw;
  if (sums_are_whole(type, x, w, channels, taps))
    return conv_forward(s, x.data, x.dtype, w.data, w.dtype, sums);
  const DType left = value_type(type, x), right = value_type(type, w);
  const auto parts = exact_parts(channels, taps, x.largest * w.largest);
  sum_parts(type, parts, numel(s.y_shape()), sums, [&](const Part& part, auto* out) {
    ConvShape shape = s;
    shape.c = s.groups * (part.c1 - part.c0);
    const Tensor a = code_columns(x, {s.n * s.h * s.w, s.groups, channels, part.c0, part.c1}, left);
    Tensor b = code_columns(w, {s.o, 1, channels * taps, part.c0 * taps, part.c1 * taps}, right);
    keep_taps(b, taps, part);
    conv_forward(shape, a.raw(), left, b.raw(), right, out);
  });
}

void exact_conv_transpose(const ConvShape& s, const Codes& x, const Codes& w, std::int32_t* sums) {
  const bool bf16 = best_exact_type() != ExactType::f32 && exact_type_works(ExactType::bf16);
  // conv_backward_data has no integer types.
  const DType values = bf16 ? DType::bf16 : DType::f32;
  // The transpose sums over output channels, so the parts are parts of these.
  const std::int64_t channels = s.o / s.groups, taps = s.kh * s.kw, filter = s.c / s.groups * taps;
  const auto parts = exact_parts(channels, taps, x.largest * w.largest);
  add_parts<float>(parts, numel(s.x_shape()), sums, [&](const Part& part, float* out) {
    ConvShape shape = s;
    shape.o = s.groups * (part.c1 - part.c0);
    const Tensor a = code_columns(x, {s.n * s.oh * s.ow, s.groups, channels, part.c0, part.c1}, values);
    Tensor b = code_columns(w, {1, s.groups, channels * filter, part.c0 * filter, part.c1 * filter}, values);
    keep_taps(b, taps, part);
    conv_backward_data(shape, a.raw(), b.raw(), values, out);
  });
}

}  // namespace fq::cpu
