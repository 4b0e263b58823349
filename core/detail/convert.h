#pragma once

/// Conversions of whole tensors between dtypes and layouts.

#include "fakequant/core/detail/check.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

void fill(Tensor& out, double value);
/// Converts each element by value. Same shape and layout. Dtypes of 8 bits and more, except storage-only
/// floats.
void convert(const Tensor& in, Tensor& out);
/// Copies the logical values from in.layout() to out.layout(). Dtypes of 1, 8, 16, 32 or 64 bits.
void relayout(const Tensor& in, Tensor& out);

/// Calls `f` with a value of the C++ type of `dtype`: visit_dtype(t.dtype(), "op", [&]<class T>(T) { .. }).
template <class F>
decltype(auto) visit_dtype(DType dtype, std::string_view function, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::f16:
      return f(float16{});
    case DType::bf16:
      return f(bfloat16{});
    case DType::i8:
      return f(std::int8_t{});
    case DType::u8:
      return f(std::uint8_t{});
    case DType::i16:
      return f(std::int16_t{});
    case DType::u16:
      return f(std::uint16_t{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::i64:
      return f(std::int64_t{});
    default:
      throw ArgumentError(
          fmt::format("[{}] {} is a storage type: dequantize it first", function, name(dtype)));
  }
}

/// Calls `f` with float or double.
template <class F>
decltype(auto) visit_float(DType dtype, std::string_view function, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    default:
      throw ArgumentError(fmt::format("[{}] the dtype is {}: use f32 or f64", function, name(dtype)));
  }
}

}  // namespace fq::detail
