#include <array>
#include <utility>

#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/backend/exact_check.h"

namespace fq::cpu {
namespace {

thread_local std::optional<ExactType> forced;  // read where a product begins, never in its tasks

bool probe(ExactType type) {
  const ForceExactType only(type);
  return detail::why_sums_are_wrong({exact_gemm, exact_conv}).empty();
}

}  // namespace

std::string_view name(ExactType type) noexcept {
  constexpr std::array<std::string_view, 3> names{"s8", "bf16", "f32"};
  return names[static_cast<std::size_t>(type)];
}

bool exact_type_works(ExactType type) {
  static const std::array<bool, 3> works{probe(ExactType::s8), probe(ExactType::bf16), true};
  return works[static_cast<std::size_t>(type)];
}

std::optional<ExactType> forced_exact_type() noexcept { return forced; }

ExactType best_exact_type() {
  if (forced) return *forced;
  if (exact_type_works(ExactType::s8)) return ExactType::s8;
  return exact_type_works(ExactType::bf16) ? ExactType::bf16 : ExactType::f32;
}

ForceExactType::ForceExactType(ExactType type) : ScopedValue(forced, type) {}

}  // namespace fq::cpu
