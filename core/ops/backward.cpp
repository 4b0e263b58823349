#include "fakequant/core/ops/backward.h"

#include <utility>

namespace fq {
namespace {

thread_local BackwardType current = BackwardType::bf16;

}  // namespace

BackwardType backward_type() noexcept { return current; }
BackwardScope::BackwardScope(BackwardType type) noexcept : previous_(std::exchange(current, type)) {}
BackwardScope::~BackwardScope() { current = previous_; }

}  // namespace fq
