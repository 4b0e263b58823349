#pragma once

/// Vectors of four consecutive elements, read and written with one instruction: 16 bytes for f32 and int32.
/// Addresses are multiples of the vector size.

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/dtype.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq::cuda {

template <class T>
struct alignas(4 * sizeof(T)) Vec4 {
  T v[4];
};
template <class T>
using Vec4Words =
    std::conditional_t<sizeof(T) == 4, uint4, std::conditional_t<sizeof(T) == 2, uint2, std::uint32_t>>;

template <class T>
FQ_HD Vec4<T> load_vec4(const T* p) {
  return FQ_BY_TARGET(std::bit_cast<Vec4<T>>(*reinterpret_cast<const Vec4Words<T>*>(p)),
                      *reinterpret_cast<const Vec4<T>*>(p));
}
template <class T>
FQ_HD void store_vec4(T* p, const T (&v)[4]) {
  const Vec4<T> four{v[0], v[1], v[2], v[3]};
  FQ_BY_TARGET(__stwb(reinterpret_cast<Vec4Words<T>*>(p), std::bit_cast<Vec4Words<T>>(four)),
               *reinterpret_cast<Vec4<T>*>(p) = four);
}

/// Loads f32 or bf16 as floats.
template <class T>
struct LoadFloats {
  using Word = T;
  FQ_HD float one(T v) const { return static_cast<float>(v); }
  FQ_HD void operator()(const T* p, float (&v)[4]) const {
    const auto four = load_vec4(p);
    for (int j = 0; j < 4; ++j) v[j] = one(four.v[j]);
  }
};

/// Loads i8 or u8 as integers.
struct LoadBytes {
  using Word = std::uint8_t;
  std::int32_t sign;  ///< 128 for i8, else 0

  explicit LoadBytes(DType dtype) : sign(dtype == DType::i8 ? 128 : 0) {}
  FQ_HD std::int32_t one(std::uint8_t v) const { return (v ^ sign) - sign; }
  FQ_HD void operator()(const std::uint8_t* p, std::int32_t (&v)[4]) const {
    const auto four = load_vec4(p);
    for (int j = 0; j < 4; ++j) v[j] = one(four.v[j]);
  }
};

FQ_HD float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
FQ_HD std::int32_t multiply_add(std::int32_t a, std::int32_t b, std::int32_t c) { return a * b + c; }

/// Calls f(T) for factors of f32 or bf16.
template <class F>
void visit_factor(DType type, F&& f) {
  if (type == DType::bf16) return f(bfloat16{});
  f(float{});
}

}  // namespace fq::cuda
