#include "fakequant/core/backend/cpu/engine/dot_products.h"

namespace fq::cpu {

bool has_dot_products() noexcept { return false; }

void dot_products(std::int64_t, std::int64_t, std::int64_t, const detail::Codes&, const detail::Codes&,
                  std::int32_t*) {}

}  // namespace fq::cpu
