#include "fakequant/train/ranks/float_sum.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

/// Of each tensor whether any rank has a term of it.
std::vector<std::int64_t> present(Communicator& ranks, const std::vector<std::vector<Tensor>>& terms,
                                  std::size_t tensors) {
  std::vector<std::int64_t> out(tensors);
  for (const auto& term : terms)
    for (std::size_t t = 0; t < tensors; ++t) out[t] |= term[t].defined() ? 1 : 0;
  ranks.max(out);
  return out;
}

void add_to(std::span<float> sums, const Tensor& term) {
  const Tensor here = term.to(Device::cpu());
  const float* added = here.data<float>();
#pragma omp parallel for simd
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += added[i];
}

void sum_over(Communicator& ranks, std::span<float> sums, Reduction reduction) {
  if (reduction == Reduction::fp32) return ranks.sum(sums);
  std::vector<bfloat16> rounded(sums.size());
  std::ranges::transform(sums, rounded.begin(), [](float x) { return bfloat16(x); });
  ranks.sum(rounded);
  std::ranges::transform(rounded, sums.begin(), [](bfloat16 x) { return static_cast<float>(x); });
}

}  // namespace

std::vector<Tensor> float_sums(Communicator& ranks, const std::vector<std::vector<Tensor>>& terms,
                               const std::vector<Tensor>& like, Reduction reduction) {
  FQ_CHECK(reduction != Reduction::exact, "float_sums", "exact sums are those of exact_sums: call it");
  for (const auto& term : terms)
    FQ_CHECK(term.size() == like.size(), "float_sums", "a term has {} tensors, the sum {}", term.size(),
             like.size());
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
      if (term[t].defined()) add_to(part(t), term[t]);
  sum_over(ranks, sums, reduction);
  std::vector<Tensor> out(like.size());
  for (std::size_t t = 0; t < like.size(); ++t) {
    if (there[t] == 0) continue;
    out[t] = Tensor::empty(like[t].shape());
    std::ranges::copy(part(t), out[t].mutable_data<float>());
  }
  return out;
}

}  // namespace fq
