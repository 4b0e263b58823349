#include "fakequant/layers/quantizer/detail/early_grids.h"

#include <algorithm>

#include "fakequant/core/ops/operators.h"

namespace fq::detail {

bool has_byte_codes(const Format& format) {
  return format.is_integer() && format.bits() <= 8 && format.bits() != 4;
}

EarlyGrids::EarlyGrids(const Calls& calls, bool relu_on_codes) : relu_on_codes_(relu_on_codes) {
  for (const auto& call : calls.list)
    for (const auto& input : call.inputs)
      if (input.defined()) readers_[input.node().get()].push_back(&call);
  // Backwards, so that the grid of an output is known before the inputs of its call are visited.
  for (auto at = calls.list.rbegin(); at != calls.list.rend(); ++at) {
    const Call& call = *at;
    const Node* value = call.output.node().get();
    const auto& all = readers(call.output);
    // The network's output is read outside of the graph, in floats.
    if (all.empty() || value == calls.output.node().get() || call.output.quantized() != nullptr) continue;
    const Grid* first = call_grid(*all.front());
    const auto same = [&](const Call* reader) {
      const Grid* other = call_grid(*reader);
      return other != nullptr && same_grid(*first, *other);
    };
    if (first != nullptr && std::ranges::all_of(all, same)) grids_[value] = first;
  }
}

// Returns the grid on which the input of a reader ends: the grid of a quantize call, or the shared grid of
// the output of a call that only moves values. Null if there is none.
const Grid* EarlyGrids::call_grid(const Call& reader) const {
  const QuantizedTensor* codes = reader.output.quantized();
  if (reader.op == "quantize")
    return codes != nullptr && codes->grid.granularity.is_per_tensor() ? &codes->grid : nullptr;
  if (codes != nullptr || !(traits(reader.op).moves_values || reader.op == "relu")) return nullptr;
  const Grid* grid = shared_grid(reader.output);
  // The maximum with 0 commutes with rounding to byte codes, so a ReLU may work on codes.
  const bool through =
      reader.op != "relu" || (relu_on_codes_ && grid != nullptr && has_byte_codes(grid->format));
  return through ? grid : nullptr;
}

// Recursion ends, because a traced graph has no cycles.
bool EarlyGrids::is_cut(const Variable& value) const {
  const auto& all = readers(value);
  return !all.empty() && std::ranges::all_of(all, [&](const Call* reader) {
    return reader->op == "relu" || (traits(reader->op).moves_values && is_cut(reader->output));
  });
}

const Grid* EarlyGrids::shared_grid(const Variable& value) const {
  const auto found = grids_.find(value.node().get());
  return found == grids_.end() ? nullptr : found->second;
}

const Grid* EarlyGrids::early_grid(const Variable& value) const {
  const auto& all = readers(value);
  const bool early = all.size() > 1 || std::ranges::any_of(all, [](const Call* reader) {
                       return traits(reader->op).moves_values;
                     });
  return early ? shared_grid(value) : nullptr;
}

const std::vector<const Call*>& EarlyGrids::readers(const Variable& value) const {
  static const std::vector<const Call*> none;
  const auto found = readers_.find(value.node().get());
  return found == readers_.end() ? none : found->second;
}

}  // namespace fq::detail
