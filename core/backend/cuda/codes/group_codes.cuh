#pragma once

/// Codes and mask of groups of eight floats that share a scale.

#include <string>

#include "fakequant/core/backend/cuda/codes/codes.cuh"
#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"

namespace fq::cuda {

struct GroupCodes {
  void* codes;
  std::uint8_t* mask;  // may be null
  bfloat16* factors;   // may be null
  CodeFormat format;
  Alarm alarm;

  [[nodiscard]] static GroupCodes of(QuantizedTensor& out, const std::string& nan_text) {
    return {mutable_device_data<void>(out.codes), mutable_device_data<std::uint8_t>(out.mask),
            mutable_device_data<bfloat16>(out.factors), CodeFormat::of(out.grid.format),
            cuda::alarm(out.codes.device(), nan_text)};
  }
  [[nodiscard]] FQ_HD RowCodes row(float scale, float amax) const {
    return RowCodes(format, grid_row(format.grid, scale, amax));
  }

  /// Stores the numbers of integer codes.
  FQ_HD void store_factors(std::int64_t first, int count, const std::uint8_t (&bytes)[group_size]) const {
    float q[group_size];
    for (int j = 0; j < group_size; ++j)
      q[j] = format.dtype == DType::i8 ? static_cast<float>(static_cast<std::int8_t>(bytes[j]))
                                       : static_cast<float>(bytes[j]);
    store_converted(factors + first, count, q);
  }
  /// Stores the numbers of codes. An integer code of -0 becomes 0, as it has no sign.
  FQ_HD void store_factors(std::int64_t first, int count, const float (&q)[group_size]) const {
    float own[group_size];
    for (int j = 0; j < group_size; ++j) own[j] = format.grid.integer ? q[j] + 0.0f : q[j];
    store_converted(factors + first, count, own);
  }

  FQ_HD void put(std::int64_t first, int count, const float (&v)[group_size], const RowCodes& of) const {
    // The quotient needs no division if the scale allows it, and gives the same code (RowCodes).
    const bool few = of.few_bits();
    if (few && format.grid.integer) {
      std::uint8_t bytes[group_size];
      for (int j = 0; j < group_size; ++j) bytes[j] = scalar::is_nan_(v[j]) ? std::uint8_t{0} : of.byte(v[j]);
      store_group(static_cast<std::uint8_t*>(codes) + first, count, bytes);
      if (factors != nullptr) store_factors(first, count, bytes);
    } else {
      float q[group_size];
      if (few)
        for (int j = 0; j < group_size; ++j) q[j] = format.floating.round(of.quotient(v[j]));
      else
        for (int j = 0; j < group_size; ++j) q[j] = format.code(v[j], of.row);
      for (int j = 0; j < group_size; ++j) q[j] = scalar::is_nan_(v[j]) ? 0.0f : q[j];
      store_codes(codes, format, first, count, q);
      if (factors != nullptr) store_factors(first, count, q);
    }
    unsigned bits = 0;
    bool nan = false;
    for (int j = 0; j < group_size; ++j) {
      bits |= static_cast<unsigned>(scalar::mask_closed(v[j], of.row.mask_lower, of.row.amax)) << j;
      nan = nan || scalar::is_nan_(v[j]);
    }
    if (mask != nullptr) mask[first / 8] = static_cast<std::uint8_t>(bits & ((1u << count) - 1));
    if (nan) raise(alarm);
  }
};

/// Stores codes of a grid with one scale.
struct TensorCodes {
  GroupCodes out;
  const float *scale, *amax;

  [[nodiscard]] static TensorCodes of(QuantizedTensor& out, const std::string& nan_text) {
    return {GroupCodes::of(out, nan_text), device_data<float>(out.grid.scale),
            device_data<float>(out.grid.amax)};
  }
  FQ_HD void put(std::int64_t first, int count, const float (&v)[group_size]) const {
    out.put(first, count, v, out.row(*scale, *amax));
  }
};

/// Floats in groups of eight.
template <class T>
struct PlainFloats {
  T* out;
  FQ_HD void put(std::int64_t first, int count, const T (&v)[group_size]) const {
    store_group(out + first, count, v);
  }
};

}  // namespace fq::cuda
