#include "fakequant/core/backend/cpu/engine/exact.h"

#include <algorithm>

#include <dnnl_version.h>

#include "fakequant/core/backend/cpu/engine/engine_tiles.h"
#include "fakequant/core/backend/cpu/engine/exact_parts.h"
#include "fakequant/core/backend/cpu/engine/patch_products.h"
#include "fakequant/core/backend/cpu/engine/word_products.h"
#include "fakequant/core/detail/check.h"

namespace fq::cpu {
namespace {

/// The engine for such factors: s8 multiplies by signed weights only.
ExactType type_for(const Codes& w) {
  const ExactType best = best_exact_type();
  if (best != ExactType::s8 || w.dtype == DType::i8) return best;
  return exact_type_works(ExactType::bf16) ? ExactType::bf16 : ExactType::f32;
}

/// Where 8-bit products are wrong words are the fastest that is right, and everywhere for a few rows.
bool by_words(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t few = 1 << 16;
  if (forced_exact_type()) return false;
  return best_exact_type() == ExactType::f32 || m * n * k <= few;
}

/// What an engine multiplies: code values, or the codes themselves.
DType value_type(ExactType type, const Codes& codes) {
  if (type == ExactType::s8) return codes.dtype;
  return type == ExactType::bf16 ? DType::bf16 : DType::f32;
}

bool fit_f32(const Codes& x, const Codes& w, std::int64_t length) {
  return length * x.largest * w.largest <= exact_limit;
}

/// u8 sums come out as they are; oneDNN takes those of s8 through f32, as it corrects them.
bool sums_are_whole(ExactType type, const Codes& x, const Codes& w, std::int64_t length) {
  return type == ExactType::s8 && (x.dtype == DType::u8 || fit_f32(x, w, length));
}

/// Convolutions of few channels have a kernel of their own on AMX, which takes u8 sums through f32 too; those
/// of one tap have it in oneDNN 3.
bool sums_are_whole(ExactType type, const Codes& x, const Codes& w, std::int64_t channels,
                    std::int64_t taps) {
  constexpr std::int64_t few = 16;
  const bool by_f32 = channels < few || (DNNL_VERSION_MAJOR > 2 && taps == 1 && tiles_allowed());
  return sums_are_whole(type, x, w, channels * taps) && (!by_f32 || fit_f32(x, w, channels * taps));
}

template <class Sum, class F>
void add_parts(const std::vector<Part>& parts, std::int64_t count, std::int32_t* sums, F&& product) {
  Tensor values = Tensor::empty({count}, dtype_of<Sum>);
  bool first = true;
  for (const Part& part : parts) {
    product(part, values.mutable_data<Sum>());
    add_part(values, first, sums);
    first = false;
  }
  if (first) std::fill_n(sums, count, 0);
}

/// Calls `product(part, values)` for each part, `values` being [count] sums to fill, i32 of the s8 engine and
/// f32 of the others, and adds them up.
template <class F>
void sum_parts(ExactType type, const std::vector<Part>& parts, std::int64_t count, std::int32_t* sums,
               F&& product) {
  type == ExactType::s8 ? add_parts<std::int32_t>(parts, count, sums, product)
                        : add_parts<float>(parts, count, sums, product);
}

}  // namespace

void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                std::int32_t* sums) {
  if (by_words(m, n, k)) return word_products(m, n, k, x, w, sums);
  const ExactType type = type_for(w);
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
  if (by_words(m, n, k)) return word_products(batch, m, n, k, x, w, sums);
  if (sums_are_whole(type_for(w), x, w, k))
    return gemm({x.data, x.dtype, m, k}, {w.data, w.dtype, k, n, true}, sums, batch);
  for (std::int64_t i = 0; i < batch; ++i)
    exact_gemm(m, n, k, {static_cast<const char*>(x.data) + i * m * k, x.dtype, x.largest},
               {static_cast<const char*>(w.data) + i * n * k, w.dtype, w.largest}, sums + i * m * n);
}

void exact_conv(const ConvShape& s, const Codes& x, const Codes& w, std::int32_t* sums) {
  const ExactType type = type_for(w);
  if (type == ExactType::f32 && !forced_exact_type() && by_patches(s)) return convolve_patches(s, x, w, sums);
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
  const DType values = bf16 ? DType::bf16 : DType::f32;
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
