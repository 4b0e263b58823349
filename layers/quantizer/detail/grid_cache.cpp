#include "fakequant/layers/quantizer/detail/grid_cache.h"

#include <algorithm>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/tape.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"

namespace fq::detail {

namespace {

// Codes and sums cannot be written in place, so only floats have a version.
std::uint64_t value_version(const Variable& x) {
  const auto* floats = std::get_if<Tensor>(&x.value());
  return floats != nullptr ? floats->version() : 0;
}

}  // namespace

// Dynamic blocks have scales from each input, although the range of the whole tensor is known.
bool GridCache::depends_on_input() const {
  return !params_.descriptor.needs_amax() || params_.descriptor.has_dynamic_blocks();
}

// The tensor's version changes with every write to it, also by an optimizer.
std::uint64_t GridCache::range_version() const {
  const Tensor amax = range_.amax();
  return amax.defined() ? amax.version() : 0;
}

/// Returns the granularity of the known range. A range of one element is per tensor, regardless of the axes.
Granularity GridCache::granularity(int rank) const {
  const QuantDescriptor& d = params_.descriptor;
  const BlockSizes& blocks = d.block_sizes();
  if (range_.amax().numel() == 1 && !blocks.scale_bits) return Granularity::per_tensor();
  if (rank >= 0) return d.granularity(rank);
  if (!blocks.empty()) return Granularity::blocks(blocks.lengths);
  const auto& axes = d.axis().values();
  return Granularity::per_axis(axes.empty() ? std::vector<int>{-1} : axes);
}

/// Returns the amax of the whole tensor. Scales of (4,3) are relative to this range. It waits for ranges on a
/// GPU.
float GridCache::global_amax(const Tensor& ranges) const {
  if (params_.descriptor.has_dynamic_blocks() && range_.amax().defined())
    return range_.used().to_vector<float>()[0];
  return std::ranges::max(ranges.to_vector<float>());
}

Grid GridCache::make_grid(const Tensor& amax, const Granularity& granularity) const {
  const Format& format = params_.descriptor.format();
  const auto& bits = params_.descriptor.block_sizes().scale_bits;
  Grid grid;
  // Block scales of 8 bits: (4, 3) is relative to the amax of the tensor, (8, 0) is absolute.
  if (bits && !granularity.is_per_tensor()) {
    const float global = *bits == NumBits(4, 3) ? global_amax(amax) : 0.0f;
    grid = Grid::block_scaled(format, granularity, amax, *bits, global, params_.name);
  } else {
    grid = Grid::from_amax(format, granularity, amax, params_.name, params_.pow2, params_.zero_point);
  }
  grid.pass_through_bwd = params_.passes_through();
  grid.scale = params_.weight_scheme->stored_scales(grid.scale);
  return grid;
}

Grid GridCache::make_input_grid(const Tensor& x) const {
  const QuantDescriptor& d = params_.descriptor;
  const Granularity granularity = d.granularity(x.rank());
  const bool blocks = !d.block_sizes().empty();
  Tensor ranges = blocks ? compute_ranges(x, granularity, params_.name)
                         : compute_ranges(x, BlockView::of(d, x.shape()), params_.name);
  if (const auto factor = d.scale_amax()) ranges = used_ranges(ranges, 0, static_cast<float>(*factor));
  return make_grid(ranges, ranges.numel() == 1 && !blocks ? Granularity::per_tensor() : granularity);
}

Grid GridCache::fixed_grid(int rank, Device device) const {
  range_.check_known();
  // The rank determines how axes that count from the back map to the input.
  const Key key{rank, range_.amax().version(), device};
  const std::scoped_lock lock(mutex_);
  if (!kept_ || key_ != key) {
    Grid grid = make_grid(range_.used(), granularity(rank));
    // The steps of a file win over amax / bound, which may differ by a rounding.
    if (range_.scale().defined()) grid.scale = range_.scale();
    kept_ = grid.to(device);
    key_ = key;
  }
  return *kept_;
}

Grid GridCache::fixed_grid() const {
  const QuantDescriptor& d = params_.descriptor;
  FQ_CHECK(!d.has_dynamic_blocks() && !d.dynamic(), "quantizer",
           "{} computes its ranges from each input: it has no fixed grid", quantizer_label(params_.name));
  {
    // A grid that is cached on the CPU for inputs of some rank has the same scales.
    const std::scoped_lock lock(mutex_);
    if (kept_ && key_.version == range_.amax().version() && key_.device.is_cpu()) return *kept_;
  }
  return fixed_grid(-1, Device::cpu());
}

Grid GridCache::input_grid(const Variable& x) const {
  const QuantDescriptor& d = params_.descriptor;
  (void)d.granularity(x.rank());  // throws for axes that x does not have
  const bool meta = x.device().is_meta();
  if (meta && (!range_.amax().defined() || !d.needs_amax() || d.has_dynamic_blocks()))
    return Grid::from_amax(d.format(), Granularity::per_tensor(), Tensor::scalar(1.0), params_.name,
                           params_.pow2, params_.zero_point);
  // make_input_grid would take the range of x instead of a missing range of the tensor.
  if (d.has_dynamic_blocks() && d.needs_amax()) range_.check_known();
  if (depends_on_input()) return make_input_grid(x.tensor());
  return fixed_grid(x.rank(), meta ? Device::cpu() : x.device());
}

Variable GridCache::cached_codes(const Variable& x) const {
  // In a trace each reader reports its own quantize call.
  if (recorder() != nullptr) return {};
  const std::scoped_lock lock(mutex_);
  const auto codes = last_.codes.lock();
  // Weak pointers: the cache does not keep values alive, and a freed node never compares equal.
  const bool same = codes && last_.value.lock() == x.node() && last_.version == value_version(x) &&
                    last_.range_version == range_version();
  return same && reusable(*codes, needs_grad({x})) ? Variable::from_node(codes) : Variable();
}

void GridCache::cache_codes(const Variable& x, const Variable& codes) const {
  // Readers of a fixed or learned grid already share codes through ops::quantize.
  if (!depends_on_input() || range_.learned().defined()) return;
  const std::scoped_lock lock(mutex_);
  last_ = {x.node(), codes.node(), value_version(x), range_version()};
}

void GridCache::forget() {
  const std::scoped_lock lock(mutex_);
  kept_.reset();
  last_ = {};
}

}  // namespace fq::detail
