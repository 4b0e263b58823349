#include "fakequant/train/ranks/detail/gradient_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/moves.h"

namespace fq {
namespace {

using detail::Kernels;
using Terms = std::vector<Tensor>;  // all terms of one tensor

/// Magnitudes are compared as f32 bits. kAbsent: no terms. kNotFinite or more: infinity or NaN.
constexpr std::int64_t kAbsent = -1, kNotFinite = 0x7f800000;

bool is_number(std::int64_t largest) { return largest > 0 && largest < kNotFinite; }

/// Returns the bits of the largest magnitude of each tensor over its terms.
std::vector<std::int64_t> largest_magnitudes(const std::vector<Terms>& terms) {
  std::vector<Tensor> found;
  for (const auto& tensor_terms : terms)
    for (const auto& term : tensor_terms)
      found.push_back(detail::run(term.device(), &Kernels::amax, term, Axes{}, "exact_sums").reshape({1}));
  std::vector<std::int64_t> out(terms.size(), kAbsent);
  if (found.empty()) return out;
  const auto magnitudes = detail::join(found, 0).to(Device::cpu()).to_vector<float>();
  auto next = magnitudes.begin();
  for (std::size_t t = 0; t < terms.size(); ++t)
    for (std::size_t i = 0; i < terms[t].size(); ++i)
      out[t] = std::max(out[t], std::int64_t{std::bit_cast<std::uint32_t>(*next++)});
  return out;
}

/// Returns s of the fixed-point unit 2^-s.
/// With |x| < 2^above and count <= 2^c, each term is below 2^(62 - c) units and the sum below 2^62: it is
/// exact in 64 bits, in any order.
int fixed_point_shift(std::int64_t largest, std::int64_t count) {
  const int above = std::ilogb(std::bit_cast<float>(static_cast<std::uint32_t>(largest))) + 1;
  return 62 - static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1))) - above;
}

/// Returns the sum of a tensor without finite, nonzero terms: undefined, zeros or NaN.
Tensor special(std::int64_t largest, const Tensor& like) {
  if (largest == kAbsent) return {};
  const double value = largest == 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
  return Tensor::full(like.shape(), value, DType::f32, like.device());
}

/// Sums all tensors in one buffer, so that ranks communicate once.
std::vector<Tensor> sum_terms(Communicator& ranks, const std::vector<Terms>& terms,
                              const std::vector<std::int64_t>& largest, std::int64_t count,
                              const std::vector<Tensor>& like) {
  // Tensors without numbers (all zero, absent, not finite) take no part of the buffer. All ranks agree on
  // them, because `largest` is the maximum over ranks.
  std::vector<std::int64_t> begins{0};
  for (std::size_t t = 0; t < like.size(); ++t)
    begins.push_back(begins.back() + (is_number(largest[t]) ? like[t].numel() : 0));
  std::vector<Tensor> out(like.size());
  Tensor sums;
  if (begins.back() > 0) sums = Tensor::empty({begins.back()}, DType::i64, like.front().device());
  const auto visit_numbers = [&](const auto& use) {
    for (std::size_t t = 0; t < like.size(); ++t) {
      if (!is_number(largest[t])) continue;
      Tensor part = sums.slice(begins[t], begins[t + 1]);
      use(t, fixed_point_shift(largest[t], count), part);
    }
  };
  visit_numbers([&](std::size_t t, int shift, Tensor& part) {
    detail::run(part.device(), &Kernels::add_fixed, terms[t], shift, part);
  });
  if (sums.defined()) ranks.sum_where_it_lies(sums);
  for (std::size_t t = 0; t < like.size(); ++t)
    out[t] = is_number(largest[t]) ? Tensor::empty(like[t].shape(), DType::f32, like[t].device())
                                   : special(largest[t], like[t]);
  visit_numbers([&](std::size_t t, int shift, Tensor& part) {
    detail::run(part.device(), &Kernels::from_fixed, part, shift, out[t]);
  });
  return out;
}

void check_term(const std::vector<Tensor>& term, const std::vector<Tensor>& like) {
  FQ_CHECK(term.size() == like.size(), "exact_sums", "a term has {} tensors, the sum {}", term.size(),
           like.size());
  for (std::size_t t = 0; t < like.size(); ++t)
    FQ_CHECK(!term[t].defined() || (term[t].shape() == like[t].shape() && term[t].dtype() == DType::f32),
             "exact_sums", "tensor {} of a term is {} {}, but the sum is f32 {}", t, name(term[t].dtype()),
             to_string(term[t].shape()), to_string(like[t].shape()));
}

/// Returns for each tensor whether any rank has a term of it.
std::vector<std::int64_t> present(Communicator& ranks, const std::vector<std::vector<Tensor>>& terms,
                                  std::size_t tensors) {
  std::vector<std::int64_t> out(tensors);
  for (const auto& term : terms)
    for (std::size_t t = 0; t < tensors; ++t) out[t] |= term[t].defined() ? 1 : 0;
  ranks.max(out);
  return out;
}

void add_term(std::span<float> sums, const Tensor& term) {
  const Tensor here = term.to(Device::cpu());
  const float* added = here.data<float>();
#pragma omp parallel for simd
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += added[i];
}

void reduce_sums(Communicator& ranks, std::span<float> sums, Reduction reduction) {
  if (reduction == Reduction::fp32) return ranks.sum(sums);
  std::vector<bfloat16> rounded(sums.size());
  std::ranges::transform(sums, rounded.begin(), [](float x) { return bfloat16(x); });
  ranks.sum(rounded);
  std::ranges::transform(rounded, sums.begin(), [](bfloat16 x) { return static_cast<float>(x); });
}

}  // namespace

std::vector<Tensor> exact_sums(Communicator& ranks, const std::vector<std::vector<Tensor>>& terms,
                               std::int64_t count, const std::vector<Tensor>& like) {
  FQ_CHECK(count >= std::int64_t(terms.size()) && count >= 1, "exact_sums",
           "{} terms on this rank, but count is {}: count the terms of all ranks", terms.size(), count);
  for (const auto& term : terms) check_term(term, like);
  if (like.empty()) return {};
  std::vector<Terms> tensor_terms(like.size());
  for (const auto& term : terms)
    for (std::size_t t = 0; t < like.size(); ++t)
      if (term[t].defined()) tensor_terms[t].push_back(term[t].to(like[t].device()));
  // f32 bits of values that are not negative have the order of the values: an integer maximum over ranks is
  // exact.
  auto largest = largest_magnitudes(tensor_terms);
  ranks.max(largest);
  return sum_terms(ranks, tensor_terms, largest, count, like);
}

std::vector<Tensor> float_sums(Communicator& ranks, const std::vector<std::vector<Tensor>>& terms,
                               const std::vector<Tensor>& like, Reduction reduction) {
  FQ_CHECK(reduction != Reduction::exact, "float_sums", "reduction is exact: call exact_sums");
  for (const auto& term : terms)
    FQ_CHECK(term.size() == like.size(), "float_sums", "a term has {} tensors, the sum {}", term.size(),
             like.size());
  // A tensor without terms on this rank can have terms on another: buffers must have equal sizes everywhere.
  const auto there = present(ranks, terms, like.size());
  std::vector<std::size_t> begins{0};
  for (std::size_t t = 0; t < like.size(); ++t)
    begins.push_back(begins.back() + (there[t] != 0 ? static_cast<std::size_t>(like[t].numel()) : 0));
  std::vector<float> sums(begins.back());
  const auto part = [&](std::size_t t) {
    return std::span(sums).subspan(begins[t], begins[t + 1] - begins[t]);
  };
  for (const auto& term : terms)
    for (std::size_t t = 0; t < like.size(); ++t)
      if (term[t].defined()) add_term(part(t), term[t]);
  reduce_sums(ranks, sums, reduction);
  std::vector<Tensor> out(like.size());
  for (std::size_t t = 0; t < like.size(); ++t) {
    if (there[t] == 0) continue;
    out[t] = Tensor::empty(like[t].shape());
    std::ranges::copy(part(t), out[t].mutable_data<float>());
  }
  return out;
}

}  // namespace fq
