#pragma once

/// Elements of arrays from one type to another.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fakequant/core/detail/convert.h"

namespace fq::detail {

/// `count` elements of one type as another.
inline void convert_elements(DType from, const std::byte* in, DType to, std::byte* out, std::int64_t count) {
  visit_dtype(from, "dataset", [&]<class From>(From) {
    visit_dtype(to, "dataset", [&]<class To>(To) {
      const auto* values = reinterpret_cast<const From*>(in);
      auto* converted = reinterpret_cast<To*>(out);
      if constexpr (std::is_same_v<From, float16> && std::is_arithmetic_v<To>)
        for (std::int64_t i = 0; i < count; ++i)
          converted[i] = static_cast<To>(static_cast<float>(values[i]));
      else if constexpr (std::is_arithmetic_v<From> && std::is_arithmetic_v<To>)
        for (std::int64_t i = 0; i < count; ++i) converted[i] = static_cast<To>(values[i]);
    });
  });
}

}  // namespace fq::detail
