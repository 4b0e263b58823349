#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "fakequant/core/cpu/exact.h"
#include "fakequant/core/cpu/reference.h"
#include "fakequant/core/error.h"

namespace fq::cpu {
namespace {

constexpr int kNone = -1;
thread_local int forced = kNone;  // read where a product begins, never in its tasks

/// Codes of the full range, with runs of the extremes that saturate 16-bit sums of pairs.
template <class T>
std::vector<T> full_range(std::int64_t count) {
  std::vector<T> codes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto mixed = static_cast<T>((i * 2654435761u) >> 24);
    codes[i] = i % 3 == 0         ? mixed
               : (i / 7) % 2 == 0 ? std::numeric_limits<T>::max()
                                  : std::numeric_limits<T>::min();
  }
  return codes;
}

template <class X>
bool gemm_is_right(std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto x = full_range<X>(m * k);
  const auto w = full_range<std::int8_t>(n * k);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(m * n)), right(sums);
  exact_gemm(m, n, k, {x.data(), dtype_of<X>, std::is_unsigned_v<X> ? 255 : 128}, {w.data(), DType::i8, 128},
             sums.data());
  reference_gemm<std::int32_t>(m, n, k, x.data(), false, w.data(), true, right.data());
  return sums == right;
}

template <class X>
bool conv_is_right(std::int64_t channels) {
  const ConvShape s{1, channels, 4, 4, 32, 3, 3, 4, 4, {1, 1}, {1, 1}};
  const auto x = full_range<X>(numel(s.x_shape()));
  const auto w = full_range<std::int8_t>(numel(s.w_shape()));
  std::vector<std::int32_t> sums(static_cast<std::size_t>(numel(s.y_shape()))), right(sums);
  exact_conv(s, {x.data(), dtype_of<X>, std::is_unsigned_v<X> ? 255 : 128}, {w.data(), DType::i8, 128},
             sums.data());
  reference_conv_forward<std::int32_t>(s, x.data(), w.data(), right.data());
  return sums == right;
}

template <class X>
bool is_right() {
  return gemm_is_right<X>(64, 64, 64) && gemm_is_right<X>(8, 16, 4608) && conv_is_right<X>(64) &&
         conv_is_right<X>(128);
}

bool probe(ExactType type) {
  const ForceExactType only(type);
  try {
    return is_right<std::int8_t>() && is_right<std::uint8_t>();
  } catch (const BackendError&) {
    return false;  // this oneDNN has no such product for this processor
  }
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

ExactType best_exact_type() {
  if (forced != kNone) return static_cast<ExactType>(forced);
  if (exact_type_works(ExactType::s8)) return ExactType::s8;
  return exact_type_works(ExactType::bf16) ? ExactType::bf16 : ExactType::f32;
}

ForceExactType::ForceExactType(ExactType type) noexcept
    : previous_(std::exchange(forced, static_cast<int>(type))) {}
ForceExactType::~ForceExactType() { forced = previous_; }

}  // namespace fq::cpu
