#pragma once

/// Gradients through a packed mask, for every vector instruction set.

#include <cstdint>

namespace fq::cpu {

/// dx[i] = mask bit i set ? dy[i] : +0, for elements of 2, 4 or 8 bytes. `mask` starts on a byte; dx may be
/// dy. `beyond_cache`: dx is written past the caches.
void apply_mask(const void* dy, const std::uint8_t* mask, std::int64_t count, int bytes, void* dx,
                bool beyond_cache);

}  // namespace fq::cpu
