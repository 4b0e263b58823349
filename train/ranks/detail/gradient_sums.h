#pragma once

/// Sums of f32 tensors over micro-batches and ranks: exact sums, and float sums with fewer bytes.
///
///     std::vector<std::vector<Tensor>> terms;  // one list of tensors per micro-batch of this process
///     terms.push_back({w, bias});
///     const std::vector<Tensor> sums = exact_sums(*one_rank(), terms, 1, {w, bias});

#include <cstdint>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {

/// Returns for each tensor of `like` the sum over all terms of all ranks, as f32 with the shape and device of
/// the tensor. All tensors must be on one device. `count` is the number of terms of all ranks. `terms` are
/// the terms of this rank, each with one tensor per tensor of `like`; there may be none. An undefined tensor
/// of a term adds nothing. A sum without terms is undefined.
///
/// Sums in 64-bit fixed point. Let 2^E be the power of two above the largest magnitude of a tensor's elements
/// over all terms. A term counts as rint(x * 2^s), to even, with s = 62 - ceil(log2(count)) - E. The integer
/// sum is rounded once. Only terms below 2^-38 of the largest element lose digits, so the result is nearly
/// always the correctly rounded sum. A tensor with an element that is not finite becomes NaN everywhere.
///
/// Needs one call of `ranks.max`, one of `ranks.sum_where_it_lies`, and 8 temporary bytes per element.
[[nodiscard]] std::vector<Tensor> exact_sums(Communicator& ranks,
                                             const std::vector<std::vector<Tensor>>& terms,
                                             std::int64_t count, const std::vector<Tensor>& like);

/// Returns the sums like `exact_sums`, but each rank adds its terms in f32 and sends 4 bytes per element, or
/// 2 bytes after rounding to bf16 (nearest even). MPI adds the values of the ranks. It adds bf16 values in
/// f32 and rounds after each addition. `reduction` is fp32 or bf16.
[[nodiscard]] std::vector<Tensor> float_sums(Communicator& ranks,
                                             const std::vector<std::vector<Tensor>>& terms,
                                             const std::vector<Tensor>& like, Reduction reduction);

}  // namespace fq
