#include "fakequant/core/backend/cpu/engines/tiles.h"

#include "fakequant/core/backend/cpu/engine/engine_tiles.h"
#include "fakequant/core/backend/cpu/engines/chain_kernels.h"

namespace fq::cpu {

std::int64_t tiled_rows(std::int64_t rows) {
  const std::int64_t high = tiles_allowed() ? rows_of_tiles() : 0;
  return high == 0 ? 0 : rows / high * high;
}

}  // namespace fq::cpu
