#include "fakequant/core/ops/quantize.h"

#include <algorithm>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/ops/detail/learned_range.h"
#include "fakequant/core/tape.h"

namespace fq::ops {
namespace {

using Key = detail::Node::GridKey;

Attributes grid_attributes(const Grid& grid) {
  if (recorder() == nullptr) return {};
  return {{"quantizer", grid.name}, {"format", to_string(grid.format)}};
}

/// `learned`: the range has a gradient, which reads the sums, or the floats of a deferred result.
bool rounds_sums(const Variable& x, const Grid& grid, bool learned) {
  const Accumulator* sums = x.accumulator();
  return sums != nullptr && grid.format.is_integer() && grid.granularity.is_per_tensor() &&
         !(learned && sums->is_deferred());
}

// Returns ranges under which the mask is set for every value, except where a pending ReLU clears it.
Tensor open_range(const Tensor& amax) {
  Tensor out = Tensor::empty(amax.shape(), DType::f32, amax.device());
  detail::run(amax.device(), &detail::Kernels::open_ranges, amax, out);
  return out;
}

/// Quantizes floats or sums. If the gradient passes everywhere, only a pending ReLU needs a mask. The mask
/// comes from quantization to an open range, or, if some parts have no ReLU, from the ReLUs themselves.
QuantizedTensor quantize_input(const Variable& input, const Grid& grid, bool sums) {
  const bool needs_gradient = detail::needs_grad({input});
  if (!sums) return fq::quantize(input.tensor(), grid, needs_gradient && !grid.pass_through_bwd);
  const Accumulator& accumulator = *input.accumulator();
  if (!grid.pass_through_bwd) return fq::requantize(accumulator, grid, needs_gradient);
  if (!needs_gradient || !accumulator.relu) {
    QuantizedTensor out = fq::requantize(accumulator, grid, false);
    if (needs_gradient && accumulator.any_relu()) (void)to_float(accumulator, &out.mask);
    return out;
  }
  Grid open = grid;
  open.amax = open_range(grid.amax);
  QuantizedTensor out = fq::requantize(accumulator, open, true);
  out.grid = grid;
  return out;
}

Variable make_codes(const Variable& x, const Grid& grid, const LearnedRange* learned) {
  const bool sums = rounds_sums(x, grid, learned != nullptr);
  const Variable input = sums ? x : x.as_float();
  QuantizedTensor out = quantize_input(input, grid, sums);
  if (learned == nullptr || !detail::needs_grad({learned->amax})) return attach_codes(input, std::move(out));
  Attributes attributes = grid_attributes(out.grid);
  return detail::attach_learned(input, std::move(out), *learned, std::move(attributes));
}

/// Returns the cached node of the key. Removes nodes of earlier values and nodes whose gradient was freed.
Variable find(const Variable& x, const Key& key, bool with_gradient) {
  const std::scoped_lock lock(x.node()->mutex);
  auto& known = x.node()->quantized;
  std::erase_if(known, [&](const auto& entry) {
    return entry.first.second != key.second || (entry.second->gradient && entry.second->gradient->freed);
  });
  for (const auto& [other, node] : known)
    if (other == key && detail::reusable(*node, with_gradient)) return Variable::from_node(node);
  return {};
}

}  // namespace

Variable attach_codes(const Variable& x, QuantizedTensor codes) {
  const Tensor mask = codes.mask;
  Attributes attributes = grid_attributes(codes.grid);
  return detail::record(
      "quantize", std::move(codes), {x},
      [mask](detail::BackwardCall& call) {
        call.dy.add_mask(mask);
        return detail::pass_gradient(call);
      },
      std::move(attributes));
}

Variable attach_joined_codes(const std::vector<Variable>& parts, QuantizedTensor codes) {
  std::vector<std::int64_t> rows;
  for (const auto& part : parts) rows.push_back(part.dim(0));
  const auto backward = [mask = codes.mask, rows](detail::BackwardCall& call) {
    call.dy.add_mask(mask);
    const auto gradients = detail::split_rows(call.dy.evaluate(), rows);
    return std::vector<detail::PendingGradient>(gradients.begin(), gradients.end());
  };
  return detail::record("quantize", std::move(codes), parts, backward);
}

Variable quantize(const Variable& x, const Grid& grid, const LearnedRange* learned, bool shared) {
  FQ_CHECK(x.defined(), "quantize", "the input of {} is undefined", detail::quantizer_label(grid.name));
  if (const auto* q = x.quantized(); q != nullptr && same_grid(q->grid, grid)) return x;
  if (!shared) return make_codes(x, grid, learned);
  const auto* values = std::get_if<Tensor>(&x.value());
  // The cached node holds the scale tensor, so its address cannot belong to another scale meanwhile. A write
  // to the value of x changes the version.
  const Key key{grid.scale.raw(), values != nullptr ? values->version() : 0};
  const bool with_gradient =
      detail::needs_grad({x}) || (learned != nullptr && detail::needs_grad({learned->amax}));
  if (Variable known = find(x, key, with_gradient); known.defined()) return known;
  Variable out = make_codes(x, grid, learned);
  const std::scoped_lock lock(x.node()->mutex);
  x.node()->quantized.emplace_back(key, out.node());
  return out;
}

Variable fake_quantize(const Variable& x, const Grid& grid) { return quantize(x, grid).as_float(); }

}  // namespace fq::ops
