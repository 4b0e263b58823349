#include "fakequant/core/ops/backward.h"

#include <utility>

namespace fq {
namespace {

thread_local BackwardType backward_in_force = BackwardType::bf16;

}  // namespace

BackwardType backward_type() noexcept { return backward_in_force; }
BackwardScope::BackwardScope(BackwardType type) noexcept
    : previous_(std::exchange(backward_in_force, type)) {}
BackwardScope::~BackwardScope() { backward_in_force = previous_; }

}  // namespace fq
