#include "fakequant/export/onnx/export/early_grids.h"

#include <algorithm>
#include <ranges>

#include "fakequant/layers/placement.h"

namespace fq::detail {

EarlyGrids::EarlyGrids(const Calls& calls) {
  for (const auto& call : calls.list)
    for (const auto& input : call.inputs)
      if (input.defined()) readers_[input.node().get()].push_back(&call);
  for (const auto& call : calls.list | std::views::reverse) {
    const Node* value = call.output.node().get();
    const auto& all = readers(call.output);
    if (all.empty() || value == calls.output.node().get() || call.output.quantized() != nullptr) continue;
    const QuantSpec* first = grid_at(*all.front());
    const auto same = [&](const Call* reader) {
      const QuantSpec* other = grid_at(*reader);
      return other != nullptr && same_grid(*first, *other);
    };
    if (first != nullptr && std::ranges::all_of(all, same)) grids_[value] = first;
  }
}

const QuantSpec* EarlyGrids::grid_at(const Call& reader) const {
  const QuantizedTensor* codes = reader.output.quantized();
  if (reader.op == "quantize")
    return codes != nullptr && codes->spec.granularity.is_per_tensor() ? &codes->spec : nullptr;
  return keeps_codes(reader.op) && codes == nullptr ? grid_of(reader.output) : nullptr;
}

const QuantSpec* EarlyGrids::grid_of(const Variable& value) const {
  const auto found = grids_.find(value.node().get());
  return found == grids_.end() ? nullptr : found->second;
}

bool EarlyGrids::is_moved(const Variable& value) const {
  return std::ranges::any_of(readers(value), [](const Call* reader) { return keeps_codes(reader->op); });
}

const std::vector<const Call*>& EarlyGrids::readers(const Variable& value) const {
  static const std::vector<const Call*> none;
  const auto found = readers_.find(value.node().get());
  return found == readers_.end() ? none : found->second;
}

}  // namespace fq::detail
