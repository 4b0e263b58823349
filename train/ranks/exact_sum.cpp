#include "fakequant/train/ranks/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

constexpr std::int64_t kAbsent = std::numeric_limits<std::int64_t>::min(), kZero = kAbsent + 1;
constexpr std::int64_t kNotFinite = std::numeric_limits<std::int64_t>::max();

using Terms = std::vector<std::span<const float>>;

/// e with 2^e above all magnitudes.
std::int64_t exponent_of(std::span<const float> values) {
  std::uint32_t most = 0;
#pragma omp parallel for simd reduction(max : most)
  for (std::size_t i = 0; i < values.size(); ++i)
    most = std::max(most, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu);
  const float largest = std::bit_cast<float>(most);
  if (!std::isfinite(largest)) return kNotFinite;
  return largest == 0 ? kZero : std::ilogb(largest) + 1;
}

/// What an element is counted in: 2^-shift.
int shift_of(std::int64_t exponent, std::int64_t count) {
  return 62 - static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1))) -
         static_cast<int>(exponent);
}

bool is_number(std::int64_t exponent) { return exponent > kZero && exponent != kNotFinite; }

void add_fixed(const Terms& terms, int shift, std::span<std::int64_t> sums) {
  const double scale = std::ldexp(1.0, shift);
#pragma omp parallel for
  for (std::size_t i = 0; i < sums.size(); ++i) {
    std::int64_t sum = 0;
    for (const auto& term : terms) sum += std::llrint(double{term[i]} * scale);
    sums[i] = sum;
  }
}

Tensor to_float(std::span<const std::int64_t> sums, int shift, const Shape& shape) {
  Tensor out = Tensor::empty(shape);
  auto* values = out.mutable_data<float>();
  const double unit = std::ldexp(1.0, -shift);
#pragma omp parallel for
  for (std::size_t i = 0; i < sums.size(); ++i)
    values[i] = static_cast<float>(double{static_cast<float>(sums[i])} * unit);
  return out;
}

/// The sum of a tensor whose terms are none, zeros, or not numbers.
Tensor special(std::int64_t exponent, const Shape& shape) {
  if (exponent == kAbsent) return {};
  return Tensor::full(shape, exponent == kZero ? 0 : std::numeric_limits<double>::quiet_NaN());
}

/// All tensors side by side, so that ranks meet once.
std::vector<Tensor> sums_of(Communicator& ranks, const std::vector<Terms>& terms,
                            const std::vector<std::int64_t>& exponents, std::int64_t count,
                            const std::vector<Tensor>& like) {
  std::vector<std::size_t> begins{0};
  for (std::size_t t = 0; t < like.size(); ++t)
    begins.push_back(begins.back() +
                     (is_number(exponents[t]) ? static_cast<std::size_t>(like[t].numel()) : 0));
  std::vector<std::int64_t> sums(begins.back());
  const auto part = [&](std::size_t t) {
    return std::span(sums).subspan(begins[t], begins[t + 1] - begins[t]);
  };
  for (std::size_t t = 0; t < like.size(); ++t)
    if (is_number(exponents[t])) add_fixed(terms[t], shift_of(exponents[t], count), part(t));
  ranks.sum(sums);
  std::vector<Tensor> out;
  for (std::size_t t = 0; t < like.size(); ++t)
    out.push_back(is_number(exponents[t]) ? to_float(part(t), shift_of(exponents[t], count), like[t].shape())
                                          : special(exponents[t], like[t].shape()));
  return out;
}

void check_term(const std::vector<Tensor>& term, const std::vector<Tensor>& like) {
  FQ_CHECK(term.size() == like.size(), "exact_sums", "a term has {} tensors, the sum {}", term.size(),
           like.size());
  for (std::size_t t = 0; t < like.size(); ++t)
    FQ_CHECK(!term[t].defined() || (term[t].shape() == like[t].shape() && term[t].dtype() == DType::f32),
             "exact_sums", "tensor {} of a term is {} {}, that of the sum f32 {}", t, name(term[t].dtype()),
             to_string(term[t].shape()), to_string(like[t].shape()));
}

}  // namespace

std::vector<Tensor> exact_sums(Communicator& ranks, const std::vector<std::vector<Tensor>>& terms,
                               std::int64_t count, const std::vector<Tensor>& like) {
  FQ_CHECK(count >= std::int64_t(terms.size()) && count >= 1, "exact_sums",
           "{} terms are given of {} in all: count those of every rank", terms.size(), count);
  for (const auto& term : terms) check_term(term, like);
  std::vector<Tensor> kept;
  std::vector<Terms> of(like.size());
  std::vector<std::int64_t> exponents(like.size(), kAbsent);
  for (const auto& term : terms)
    for (std::size_t t = 0; t < like.size(); ++t) {
      if (!term[t].defined()) continue;
      kept.push_back(term[t].to(Device::cpu()));
      of[t].emplace_back(kept.back().data<float>(), static_cast<std::size_t>(kept.back().numel()));
      exponents[t] = std::max(exponents[t], exponent_of(of[t].back()));
    }
  ranks.max(exponents);
  return sums_of(ranks, of, exponents, count, like);
}

}  // namespace fq
