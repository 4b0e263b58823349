#include "fakequant/core/backend/exact_check.h"

#include <limits>
#include <vector>

#include "fakequant/core/backend/cpu/engine/loops.h"
#include "fakequant/core/error.h"

namespace fq::detail {
namespace {

// A third of the codes are spread over the range, the others are runs of the largest or the smallest code.
// Runs of extremes saturate the int16 sums of processors without VNNI.
template <class T>
std::vector<T> full_range_codes(std::int64_t count) {
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
Codes code_view(const std::vector<X>& x) {
  // An engine decides by the largest magnitudes whether its float sums must be split.
  return Codes{x.data(), fq::cpp_dtype<X>, std::is_unsigned_v<X> ? 255 : 128};
}

template <class X>
bool gemm_is_right(const ExactProducts& products, std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto x = full_range_codes<X>(m * k);
  const auto w = full_range_codes<std::int8_t>(n * k);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(m * n)), right(sums);
  products.gemm(m, n, k, code_view(x), code_view(w), sums.data());
  cpu::reference_gemm<std::int32_t>(m, n, k, x.data(), false, w.data(), true, right.data());
  return sums == right;
}

template <class X>
bool conv_is_right(const ExactProducts& products, std::int64_t channels) {
  const ConvShape s{1, channels, 4, 4, 32, 3, 3, 4, 4, {1, 1}, {1, 1}};
  const auto x = full_range_codes<X>(numel(s.x_shape()));
  const auto w = full_range_codes<std::int8_t>(numel(s.w_shape()));
  std::vector<std::int32_t> sums(static_cast<std::size_t>(numel(s.y_shape()))), right(sums);
  products.conv(s, code_view(x), code_view(w), sums.data());
  cpu::reference_conv_forward<std::int32_t>(s, x.data(), w.data(), right.data());
  return sums == right;
}

template <class X>
bool is_right(const ExactProducts& products) {
  // A square product, a long sum (4608 = 512 channels * 3 * 3 taps), and convolutions, which have kernels of
  // their own.
  return gemm_is_right<X>(products, 64, 64, 64) && gemm_is_right<X>(products, 8, 16, 4608) &&
         conv_is_right<X>(products, 64) && conv_is_right<X>(products, 128);
}

}  // namespace

std::string why_sums_are_wrong(const ExactProducts& products) {
  try {
    const bool right = is_right<std::int8_t>(products) && is_right<std::uint8_t>(products);
    return right ? "" : "products of full-range codes come out wrong";
  } catch (const BackendError& error) {
    return error.what();  // this processor has no such product
  }
}

}  // namespace fq::detail
