#include "fakequant/core/backend/cpu/engine/exact_parts.h"

#include <algorithm>

#include "fakequant/core/detail/convert.h"

namespace fq::cpu {
namespace {

template <class Code, class Value>
void decode_columns(const Code* codes, const CodeColumns& s, Value* out) {
  const std::int64_t kept = s.end - s.begin;
#pragma omp parallel for schedule(static) if (s.rows * s.groups * kept > 65536)
  for (std::int64_t r = 0; r < s.rows; ++r)
    for (std::int64_t g = 0; g < s.groups; ++g) {
      const Code* from = codes + (r * s.groups + g) * s.width + s.begin;
      Value* to = out + (r * s.groups + g) * kept;
      for (std::int64_t i = 0; i < kept; ++i) to[i] = static_cast<Value>(static_cast<float>(from[i]));
    }
}

/// One long row would be one task: whole rows may be cut anywhere.
CodeColumns balanced(CodeColumns s) {
  constexpr std::int64_t piece = 4096;
  const std::int64_t count = s.rows * s.groups * s.width;
  if (s.begin != 0 || s.end != s.width || count % piece != 0) return s;
  return {count / piece, 1, piece, 0, piece};
}

}  // namespace

std::vector<Part> exact_parts(std::int64_t channels, std::int64_t taps, std::int64_t largest) {
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
        sums[i] = (first ? 0 : sums[i]) + static_cast<std::int32_t>(values[i]);
    }
  });
}

}  // namespace fq::cpu
