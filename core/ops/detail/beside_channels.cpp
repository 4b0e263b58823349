#include "fakequant/core/ops/detail/beside_channels.h"

#include <algorithm>

#include "fakequant/core/detail/moves.h"

namespace fq::detail {
namespace {

using Moves = std::vector<Move>;

Tensor all_moved(Tensor x, const Moves& moves) {
  for (const auto& move : moves) x = moved(x, move);
  return x;
}

/// False, with x half done, for what has no sums of one channel on axis 1.
bool move_sums(Accumulator& x, const Moves& moves) {
  const auto replace = [&](Tensor& tensor) {
    tensor = all_moved(tensor, moves);
    return true;
  };
  if (auto* product = std::get_if<ProductSums>(&x.value)) return product->axis == 1 && replace(product->sums);
  if (auto* normalized = std::get_if<NormalizedSums>(&x.value))
    return normalized->axis == 1 && replace(normalized->sums);
  if (auto* sums = std::get_if<PooledSums>(&x.value)) return replace(sums->sums);
  if (auto* averages = std::get_if<Averages>(&x.value)) return replace(averages->values);
  auto* concat = std::get_if<AccumulatorConcat>(&x.value);
  return concat != nullptr && concat->axis == 1 &&
         std::ranges::all_of(concat->parts, [&](Accumulator& part) { return move_sums(part, moves); });
}

}  // namespace

Variable move_beside_channels(std::string_view op, const Variable& x, Moves moves) {
  std::vector<Shape> shapes{x.shape()};
  for (const auto& move : moves) shapes.push_back(moved_shape(shapes.back(), move));
  const auto backward = [moves, shapes](Tensor dy) {
    for (std::size_t i = moves.size(); i-- > 0;) dy = moved_back(dy, moves[i], shapes[i]);
    return std::vector<Tensor>{dy};
  };
  if (const auto* codes = x.quantized(); codes != nullptr && is_movable(*codes))
    return record(op, with_codes(*codes, all_moved(codes->codes, moves)), {x}, backward);
  if (const auto* sums = x.accumulator()) {
    Accumulator out = *sums;
    if (move_sums(out, moves)) return record(op, std::move(out), {x}, backward);
  }
  const auto read = floats(x, op);
  return record(op, all_moved(read.tensor, moves), {read.variable}, backward);
}

}  // namespace fq::detail
