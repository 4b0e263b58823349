#pragma once

/// Elementwise loops over tensors of any float type in f32 arithmetic, by blocks that share a scale.

#include <array>

#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/reference/detail/code_values.h"

namespace fq::detail {

/// Elements a chunk: small enough for the first-level cache, long enough for vectors.
inline constexpr std::int64_t chunk_elements = 1024;

/// f32 of elements [begin, begin + count) in memory order, of any dtype: the tensor's own memory, or
/// `buffer`.
inline const float* read_floats(const Tensor& x, std::int64_t begin, std::int64_t count, float* buffer) {
  if (x.dtype() == DType::f32) return static_cast<const float*>(x.raw()) + begin;
  if (is_storage_only(x.dtype())) return decode_values(x, begin, count, buffer), buffer;
  visit_dtype(x.dtype(), "read", [&]<class T>(T) {
    const T* from = static_cast<const T*>(x.raw()) + begin;
    for (std::int64_t k = 0; k < count; ++k) buffer[k] = static_cast<float>(from[k]);
  });
  return buffer;
}

/// Stores f32 values as elements of a float type, rounded, or of an integer type that can hold them.
inline void write_floats(const float* values, std::int64_t count, DType dtype, void* out,
                         std::int64_t begin) {
  visit_dtype(dtype, "write", [&]<class T>(T) {
    T* to = static_cast<T*>(out) + begin;
    // By way of 32 bits, which loops can do in vectors.
    using Lane = std::conditional_t<std::is_integral_v<T> && sizeof(T) < 4, std::int32_t, T>;
    for (std::int64_t k = 0; k < count; ++k) to[k] = static_cast<T>(static_cast<Lane>(values[k]));
  });
}

/// Calls f(values, begin, count, j, step) for chunks of x, row-major, of any dtype, as f32: element k of a
/// chunk belongs to block j + k * step. Throws ArgumentError for an undefined x.
template <class F>
void visit_chunks(const Tensor& x, const Shape& block, F&& f) {
  FQ_CHECK(x.defined(), "quantize", "the input is missing: use a tensor");
  std::array<float, chunk_elements> buffer;
  visit_block_runs(x.shape(), block, [&](auto begin, auto end, auto j, auto step) {
    for (auto i = begin; i < end; i += chunk_elements) {
      const auto count = std::min(chunk_elements, end - i);
      f(read_floats(x, i, count, buffer.data()), i, count, j + (i - begin) * step, step);
    }
  });
}

/// y = f(x): f(in, out, count, j, step) fills f32 values, which are rounded to the type of y (8 bits and
/// wider, float or integer). x and y are row-major and have one shape.
template <class F>
void map_blocks(const Tensor& x, const Shape& block, Tensor& y, F&& f) {
  std::array<float, chunk_elements> results;
  void* out = y.mutable_raw();
  visit_chunks(x, block, [&](const float* in, auto begin, auto count, auto j, auto step) {
    float* to = y.dtype() == DType::f32 ? static_cast<float*>(out) + begin : results.data();
    f(in, to, count, j, step);
    if (y.dtype() != DType::f32) write_floats(to, count, y.dtype(), out, begin);
  });
}

}  // namespace fq::detail
