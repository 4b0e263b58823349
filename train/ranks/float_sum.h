#pragma once

/// Sums of f32 tensors over ranks with fewer bytes than exact ones, whose bits depend on the number of ranks.
///
///     const std::vector<Tensor> sums = float_sums(*started_ranks(), {{w, bias}}, {w, bias},
///     Reduction::bf16);

#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {

/// As `exact_sums` (train/ranks/exact_sum.h), but each rank adds its terms in f32 and gives 4 bytes an
/// element or, rounded to bf16 to nearest even, 2; MPI adds those of the ranks, bf16 in f32 rounded again at
/// each addition. `reduction` is fp32 or bf16.
[[nodiscard]] std::vector<Tensor> float_sums(Communicator& ranks,
                                             const std::vector<std::vector<Tensor>>& terms,
                                             const std::vector<Tensor>& like, Reduction reduction);

}  // namespace fq
