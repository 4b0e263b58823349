#include "fakequant/train/loop/detail/range_guard.h"

#include <algorithm>

#include "fakequant/core/numerics/detail/grid_numbers.h"
#include "fakequant/layers/quantize.h"

namespace fq::detail {
namespace {

constexpr float kLeast = 0x1p-23F;

/// Whether `now` had to be changed. A range that is still zero stays: the quantizer gives it its first
/// values.
bool hold(float& now, float before) {
  if (before <= least_amax) return false;
  const float least = std::max(before / 2, kLeast), most = 2 * std::max(before, kLeast);
  if (!(now < least) && !(now > most)) return false;
  now = now < least ? least : most;
  return true;
}

}  // namespace

RangeGuard::RangeGuard(Module& model) {
  for (const auto& entry : named_quantizers(model))
    if (const Variable& amax = entry.quantizer->range().learned(); amax.defined())
      ranges_.push_back({entry.name + ".amax", amax});
}

void RangeGuard::before() {
  for (auto& range : ranges_) range.before = range.amax.tensor().to_vector<float>();
}

void RangeGuard::after() {
  for (auto& range : ranges_) {
    auto now = range.amax.tensor().to_vector<float>();
    bool changed = false;
    for (std::size_t i = 0; i < now.size(); ++i) changed |= hold(now[i], range.before[i]);
    if (!changed) continue;
    ++held_;
    range.was_held = true;
    range.amax.mutable_tensor().copy_from(Tensor::from(now, range.amax.shape()).to(range.amax.device()));
  }
}

std::vector<std::string> RangeGuard::names() const {
  std::vector<std::string> out;
  for (const auto& range : ranges_)
    if (range.was_held) out.push_back(range.name);
  return out;
}

}  // namespace fq::detail
