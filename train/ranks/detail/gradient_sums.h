#pragma once

/// Sums of f32 tensors over micro-batches and ranks: exact sums, and float sums with fewer bytes.
///
///     std::vector<std::vector<Tensor>> terms;  // of this process: one list of tensors for each micro-batch
///     terms.push_back({w, bias});
///     const std::vector<Tensor> sums = exact_sums(*one_rank(), terms, 1, {w, bias});

#include <cstdint>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {

/// For each tensor of `like`, which lie on one device, the sum over all terms of all ranks, `count` of them:
/// f32 on that device and of that shape. `terms` are those of this rank, each with one tensor for each of
/// `like`; there may be none. A tensor of a term may be undefined, which adds nothing; a sum of nothing is
/// undefined.
///
/// In 64-bit fixed point: with 2^E the power of two above the largest magnitude of a tensor's elements over
/// all terms, a term counts as rint(x * 2^s), s = 62 - ceil(log2(count)) - E, to even, and the integer sum is
/// rounded once. Terms below 2^-38 of the largest element lose digits, so that the result is the correctly
/// rounded sum nearly always. A tensor with an element that is not finite becomes NaN in all places.
///
/// One call of `ranks.max` and one of `ranks.sum_where_it_lies` for all tensors; 8 bytes an element
/// meanwhile.
[[nodiscard]] std::vector<Tensor> exact_sums(Communicator& ranks,
                                             const std::vector<std::vector<Tensor>>& terms,
                                             std::int64_t count, const std::vector<Tensor>& like);

/// As `exact_sums` (train/ranks/detail/gradient_sums.h), but each rank adds its terms in f32 and gives 4
/// bytes an element or, rounded to bf16 to nearest even, 2; MPI adds those of the ranks, bf16 in f32 rounded
/// again at each addition. `reduction` is fp32 or bf16.
[[nodiscard]] std::vector<Tensor> float_sums(Communicator& ranks,
                                             const std::vector<std::vector<Tensor>>& terms,
                                             const std::vector<Tensor>& like, Reduction reduction);

}  // namespace fq
