#include "fakequant/core/ops/quantize.h"

#include <algorithm>

#include "fakequant/core/check.h"
#include "fakequant/core/tape.h"

namespace fq::ops {
namespace {

using Key = detail::Node::GridKey;

Variable make_codes(const Variable& x, const QuantSpec& spec) {
  const bool rounds_sums =
      x.accumulator() != nullptr && spec.format.is_integer() && spec.granularity.is_per_tensor();
  const Variable input = rounds_sums ? x : x.as_float();
  const bool with_mask = detail::needs_grad({input});
  QuantizedTensor out = rounds_sums ? fq::requantize(*x.accumulator(), spec, with_mask)
                                    : fq::quantize(input.tensor(), spec, with_mask);
  return attach_codes(input, std::move(out));
}

Variable find(const Variable& x, const Key& key) {
  const std::scoped_lock lock(x.node()->mutex);
  auto& known = x.node()->quantized;
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  for (const auto& [other, node] : known)
    if (auto alive = node.lock(); other == key && alive && alive->requires_grad == detail::needs_grad({x}))
      return Variable::from_node(std::move(alive));
  return {};
}

}  // namespace

Variable attach_codes(const Variable& x, QuantizedTensor codes) {
  const Tensor mask = codes.mask;
  Attributes attributes;
  if (recorder() != nullptr)
    attributes = {{"quantizer", codes.spec.name}, {"format", to_string(codes.spec.format)}};
  return detail::record(
      "quantize", std::move(codes), {x},
      [mask](const Tensor& dy) { return std::vector<Tensor>{apply_mask(dy, mask)}; }, std::move(attributes));
}

Variable quantize(const Variable& x, const QuantSpec& spec) {
  FQ_CHECK(x.defined(), "quantize", "the input of '{}' is undefined", spec.name);
  if (const auto* q = x.quantized(); q != nullptr && same_grid(q->spec, spec)) return x;
  const auto* values = std::get_if<Tensor>(&x.value());
  const Key key{spec.scale.raw(), values != nullptr ? values->version() : 0};
  if (Variable known = find(x, key); known.defined()) return known;
  Variable out = make_codes(x, spec);
  const std::scoped_lock lock(x.node()->mutex);
  x.node()->quantized.emplace_back(key, out.node());
  return out;
}

Variable fake_quantize(const Variable& x, const QuantSpec& spec) { return quantize(x, spec).as_float(); }

}  // namespace fq::ops
