#pragma once

/// Products of bf16 by tiles of AMX, without oneDNN, which writes results in pieces that evict each other
/// from the cache.

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/tile_kernels.h"

namespace fq::cpu {

/// Whether the processor has AMX and the system lets this process use it, which oneDNN has asked
/// (ONEDNN_MAX_CPU_ISA applies).
[[nodiscard]] bool tiles_allowed();
/// Whether `multiply_by_tiles` is for these; by shape where it has the bits of oneDNN, which splits long
/// sums.
[[nodiscard]] bool tiles_are_faster(const Matrix& a, const Matrix& b, Sharing sharing);
/// c [m, n] of one product, scaled if need be, in the order of terms: the same bits for any number of
/// threads.
void multiply_by_tiles(const Matrix& a, const Matrix& b, float* c, const TileScales& scales = {});
/// A batch of matrices, of which some may lie side by side: see `gemm`.
void multiply_by_tiles(const Matrix& a, const Matrix& b, float* c, std::int64_t batch, std::int64_t c_beside);

}  // namespace fq::cpu
