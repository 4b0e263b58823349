#include "fakequant/core/backend/cpu/engines/tiles.h"

#include <dnnl.hpp>

#include "fakequant/core/backend/cpu/engines/chain_kernels.h"

namespace fq::cpu {

std::int64_t tiled_rows(std::int64_t rows) {
  constexpr auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
  static const bool allowed = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & amx) == amx;
  const std::int64_t high = allowed ? rows_of_tiles() : 0;
  return high == 0 ? 0 : rows / high * high;
}

}  // namespace fq::cpu
