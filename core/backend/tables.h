#pragma once

/// The tables of the backends. That of CUDA is null in builds without it (no_cuda.cpp).

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/backend/range_kernels.h"
#include "fakequant/core/backend/rank_kernels.h"

namespace fq::cpu {
extern const detail::Kernels table;
extern const detail::RangeKernels range_table;
extern const detail::RankKernels rank_table;
}  // namespace fq::cpu
namespace fq::meta {
extern const detail::Kernels table;  ///< sizes of memory are counted, nothing else is there
}
namespace fq::cuda {
extern const fq::detail::Kernels* const table;
extern const fq::detail::RangeKernels* const range_table;
extern const fq::detail::RankKernels* const rank_table;
}  // namespace fq::cuda
