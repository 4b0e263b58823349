#include "fakequant/layers/quantizer/range.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/device_traits.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/quantized.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/detail/position_mask.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"

namespace fq {
namespace {

/// Returns 1 for each range that is zero and 0 for the others, on the host. Undefined if no range is zero.
Tensor zero_range_mask(const Tensor& amax) {
  Tensor out = detail::flat_ranges(amax);
  auto* values = out.mutable_data<float>();
  bool any = false;
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    values[i] = values[i] <= detail::least_amax ? 1.0f : 0.0f;
    any |= values[i] != 0;
  }
  return any ? out : Tensor();
}

/// Returns the smallest allowed ratio of a growing learned range to the largest magnitude. Learned ranges of
/// few bits are far below the largest magnitude.
float trained_share(const QuantDescriptor& d) {
  return std::min(1.0f, static_cast<float>(d.format().bits()) / 8);
}

bool all_zero(const Tensor& amax) {
  return std::ranges::all_of(amax.to(Device::cpu()).to(DType::f32).to_vector<float>(),
                             [](float v) { return v <= detail::least_amax; });
}

}  // namespace

// The reference arithmetic keeps ModelOpt's results for zero ranges, and schemes without a range have none.
bool QuantizerRange::grows() const {
  return growing_.defined() && params_.arithmetic == Arithmetic::deployed &&
         params_.descriptor.needs_amax() && params_.weight_scheme->uses_range();
}

/// Reads a learned range again, because an optimizer may have changed it.
bool QuantizerRange::is_zero() const {
  return zero_ && grows() && (!learned_.defined() || all_zero(learned_.tensor()));
}

Tensor QuantizerRange::used() const {
  constexpr float least = 0x1p-23f;  // of a learned range: it stays trainable after a step below 0
  const auto factor = static_cast<float>(params_.descriptor.scale_amax().value_or(1));
  return detail::listed(
      detail::used_ranges(amax().to(DType::f32), learned_.defined() ? least : 0.0f, factor));
}

void QuantizerRange::check_known() const {
  FQ_CHECK(amax().defined(), "quantizer",
           "{} has no amax: calibrate it, set amax, or make its descriptor dynamic",
           detail::quantizer_label(params_.name));
}

void QuantizerRange::set_scale(const Tensor& scale) {
  const QuantDescriptor& d = params_.descriptor;
  const std::string& name = params_.name;
  FQ_CHECK(params_.arithmetic == Arithmetic::deployed && !params_.pow2 && !d.scale_amax() &&
               !d.block_sizes().scale_bits && !d.learn_amax(),
           "quantizer", "{} has no scales of its own: set amax, from which the scales follow",
           detail::quantizer_label(name));
  FQ_CHECK(scale.defined() && scale.numel() > 0, "quantizer", "the scale of {} is empty",
           detail::quantizer_label(name));
  const Tensor steps = detail::flat_ranges(scale);
  Tensor amax = steps.clone();
  for (std::int64_t i = 0; i < amax.numel(); ++i) {
    float& v = amax.mutable_data<float>()[i];
    FQ_CHECK(v > 0 && std::isfinite(v), "quantizer", "the scale of {} is {}: it must be positive",
             detail::quantizer_label(name), v);
    v *= d.format().bound();
  }
  // fl(fl(step * bound) / bound) may differ from the step by a rounding. Then the step is stored too, so that
  // codes of imported files keep their values.
  const Tensor made = Grid::from_amax(d.format(), Granularity::per_tensor(), amax, name).scale;
  for (std::int64_t i = 0; i < amax.numel(); ++i)
    FQ_CHECK(amax.data<float>()[i] > detail::least_amax || made.data<float>()[i] == steps.data<float>()[i],
             "quantizer", "the scale of {} is {}, which gives a range of at most 2^-24",
             detail::quantizer_label(name), steps.data<float>()[i]);
  set(amax);
  if (!bitwise_equal(made, steps)) scale_ = steps;
}

void QuantizerRange::keep(const Tensor& amax) {
  scale_ = {};
  const bool reference = params_.arithmetic == Arithmetic::reference;
  const Tensor stored = reference ? amax.to(Device::cpu()).clone() : detail::flat_ranges(amax);
  if (!params_.descriptor.learn_amax()) {
    learned_ = {};
    amax_ = stored;
    return mark_zeros();
  }
  const Tensor values = detail::flat_ranges(stored);
  amax_ = {};
  // A copy into the parameter: optimizers hold the Variable.
  if (learned_.defined() && learned_.shape() == values.shape())
    learned_.mutable_tensor().copy_from(values);
  else
    learned_ = Variable(values.to(device_), true);
  mark_zeros();
}

void QuantizerRange::mark_zeros() {
  growing_ = zero_range_mask(amax());
  zero_ = growing_.defined() && all_zero(amax());
}

void QuantizerRange::clear() {
  scale_ = {};
  growing_ = {};
  zero_ = false;
  learned_ = {};
  amax_ = {};
}

// set() would clear the flags of ranges that are no longer zero.
void QuantizerRange::raise(const Tensor& amax) {
  const Tensor growing = growing_;
  set(amax);
  growing_ = growing;
}

// Ranges of other channels or blocks cannot be converted, so they are cleared.
void QuantizerRange::follow(const QuantDescriptor& before) {
  const QuantDescriptor& now = params_.descriptor;
  const Tensor known = amax();
  if (now.amax().defined())
    keep(now.amax().tensor());
  else if (before.axis() != now.axis() || before.block_sizes() != now.block_sizes())
    clear();
  else if (known.defined()) {
    const Tensor growing = growing_;
    keep(known);
    growing_ = growing;
  }
}

void QuantizerRange::set(const Tensor& amax) {
  const QuantDescriptor& d = params_.descriptor;
  const std::string& name = params_.name;
  // A descriptor with a list of amax values has several ranges too.
  const bool single = d.axis().empty() && d.block_sizes().empty() && d.amax().values().size() <= 1;
  FQ_CHECK(amax.defined() && amax.numel() > 0, "quantizer",
           "amax of {} is empty: use one value, or one per channel", detail::quantizer_label(name));
  FQ_CHECK(amax.numel() == 1 || !(single || d.has_dynamic_blocks()), "quantizer",
           "amax of {} has {} elements: use one for a {} quantizer", detail::quantizer_label(name),
           amax.numel(), single ? "per-tensor" : "dynamic block");
  FQ_CHECK(d.needs_amax(), "quantizer",
           "amax for {}, which computes its ranges from each input: leave it out",
           detail::quantizer_label(name));
  // A single range may be replaced by one per channel; a number of channels cannot change.
  const Tensor before = this->amax();
  FQ_CHECK(!before.defined() || before.numel() == 1 || amax.numel() == before.numel(), "quantizer",
           "amax of {} has {} elements, it had {}: use one amax per channel", detail::quantizer_label(name),
           amax.numel(), before.numel());
  const Tensor values = amax.to(DType::f32);
  for (const float v : values.to_vector<float>())
    FQ_CHECK(v >= 0 && std::isfinite(v), "quantizer", "amax of {} is {}: it must be finite and not negative",
             detail::quantizer_label(name), v);
  keep(amax);
}

void QuantizerRange::load(const Tensor& amax, const Tensor& growing) {
  if (!amax.defined()) return clear();
  if (!params_.descriptor.learn_amax()) {
    clear();
    set(amax);
  } else {
    // Not set(): a trained parameter may be negative, and used() limits it.
    if (learned_.defined() && learned_.numel() != amax.numel()) clear();
    keep(amax);
  }
  if (!growing.defined()) return;
  FQ_CHECK(growing.numel() == amax.numel(), "quantizer", "{} has {} ranges, {} of them are marked as growing",
           detail::quantizer_label(params_.name), amax.numel(), growing.numel());
  growing_ = detail::flat_ranges(growing);
}

Tensor QuantizerRange::batch_ranges(const Tensor& x) const {
  const QuantDescriptor& d = params_.descriptor;
  // A known single range stays per tensor, although the descriptor has axes.
  const bool one = amax().defined() && amax().numel() == 1;
  const auto view = one ? detail::BlockView(x.shape(), Axes{}) : detail::BlockView::of(d, x.shape());
  const Tensor out = detail::compute_ranges(x, view, params_.name);
  return d.has_dynamic_blocks() ? out.to(Device::cpu()) : out;  // the host computes their scales
}

void QuantizerRange::move_towards(const Variable& whole) {
  const Tensor x = detail::seen_by_ranges(whole.tensor(), params_.descriptor);
  if (x.numel() == 0) return;
  scale_ = {};
  const bool first = !amax_.defined();  // then the batch alone sets the range
  const Tensor batch = batch_ranges(x);
  if (first) amax_ = Tensor::zeros(batch.shape(), DType::f32, batch.device());
  // Ranges of static blocks depend on the shape of the input.
  FQ_CHECK(batch.numel() == amax_.numel(), "quantizer",
           "{} has {} ranges, its input {} gives {}: running ranges need inputs of one shape",
           detail::quantizer_label(params_.name), amax_.numel(), to_string(x.shape()), batch.numel());
  amax_ = amax_.to(batch.device());
  Tensor moved = amax_.to(DType::f32);
  detail::move_ranges(moved, batch, first ? 1.0f : static_cast<float>(params_.momentum));
  // Rounded in place into the type that reference arithmetic stores.
  if (amax_.dtype() != DType::f32) amax_.copy_from(moved.to(amax_.dtype()));
  // Only the first batch can mark ranges as zero.
  if (first) mark_zeros();
  if (grows()) grow_to_batch(batch);
}

void QuantizerRange::grow(const Variable& x) {
  const Tensor batch = batch_ranges(x.tensor());
  FQ_CHECK(batch.numel() == amax().numel(), "quantizer",
           "{} has {} ranges, its input {} gives {}: calibrate it with inputs of this shape",
           detail::quantizer_label(params_.name), amax().numel(), to_string(x.shape()), batch.numel());
  grow_to_batch(batch);
}

RangeGrowth QuantizerRange::growth() const {
  RangeGrowth out{amax().to(Device::cpu()).to_vector<float>(), {}};
  out.growing = growing_.defined() ? growing_.to(Device::cpu()).to_vector<float>()
                                   : std::vector<float>(out.amax.size(), 0.0f);
  return out;
}

void QuantizerRange::set_growth(const RangeGrowth& growth) {
  Tensor target = learned_.defined() ? learned_.mutable_tensor() : amax_;
  target.copy_from(Tensor::from(growth.amax, target.shape()).to(target.device()));
  growing_ = Tensor::from(growth.growing, target.shape()).to(target.device());
  zero_ = all_zero(target);
  if (all_zero(growing_)) growing_ = {};
}

void QuantizerRange::grow_to_batch(const Tensor& batch) {
  const bool first = zero_, learned = learned_.defined();
  if (first && all_zero(batch)) return;  // the host decides whether the quantizer quantizes
  zero_ = false;
  scale_ = {};
  if (!learned) amax_ = amax_.to(batch.device());
  Tensor amax = learned ? learned_.mutable_tensor() : amax_;
  growing_ = growing_.to(batch.device());
  // A learned range starts at the largest magnitude; later, only a lower limit of it is enforced.
  const float share = learned && !first ? trained_share(params_.descriptor) : 1;
  detail::grow_ranges(amax, share < 1 ? detail::used_ranges(batch, 0, share) : batch, growing_);
}

Tensor QuantizerRange::exchange(Tensor amax) { return std::exchange(amax_, std::move(amax)); }

void QuantizerRange::to(Device device) {
  device_ = device;
  // A fixed range stays on the host. Only a running range on a GPU moves.
  if (detail::device_traits(amax_.device()).own_memory) amax_ = amax_.to(device);
}

}  // namespace fq
