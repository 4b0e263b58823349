#include "fakequant/core/io/detail/chunk_grid.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fq::detail {
namespace {

/// Advances to the next of the positions low, low + step, .. below high along each axis, the last axis
/// fastest. Returns false after the last position.
bool advance(Shape& place, const Shape& low, const Shape& high, const Shape& step) {
  for (std::size_t axis = place.size(); axis-- > 0;) {
    place[axis] += step[axis];
    if (place[axis] < high[axis]) return true;
    place[axis] = low[axis];
  }
  return false;
}

}  // namespace

ChunkGrid::ChunkGrid(Shape sizes, Shape chunk, std::int64_t element_bytes)
    : sizes_(std::move(sizes)), chunk_(std::move(chunk)), element_bytes_(element_bytes) {}

bool ChunkGrid::is_padded(const Shape& origin) const {
  for (std::size_t axis = 0; axis < sizes_.size(); ++axis)
    if (origin[axis] + chunk_[axis] > sizes_[axis]) return true;
  return false;
}

void ChunkGrid::visit_chunks(std::int64_t begin, std::int64_t end,
                             const std::function<void(const Shape&)>& visit) const {
  Shape low(sizes_.size(), 0), high = sizes_;
  low[0] = begin / chunk_[0] * chunk_[0];
  // Chunks that contain rows begin .. end - 1.
  high[0] = end;
  if (begin >= end || std::ranges::count(sizes_, 0) > 0) return;
  Shape origin = low;
  do {
    visit(origin);
  } while (advance(origin, low, high, chunk_));
}

void ChunkGrid::copy(const Shape& origin, const std::byte* from, std::int64_t begin, std::int64_t end,
                     std::byte* rows) const {
  std::size_t run_axis = sizes_.size() - 1;  // axes after it are contiguous in the chunk and in the rows
  while (run_axis > 1 && chunk_[run_axis] == sizes_[run_axis]) --run_axis;
  Shape low = origin, high = origin;
  for (std::size_t axis = 0; axis < sizes_.size(); ++axis)
    high[axis] = std::min(origin[axis] + chunk_[axis], sizes_[axis]);
  low[0] = std::max(low[0], begin);
  high[0] = std::min(high[0], end);
  std::int64_t run_bytes = element_bytes_;
  for (std::size_t axis = run_axis; axis < sizes_.size(); ++axis) run_bytes *= high[axis] - low[axis];
  Shape step(sizes_.size(), 1), place = low;
  for (std::size_t axis = run_axis; axis < sizes_.size(); ++axis) step[axis] = high[axis] - low[axis];
  do {
    std::int64_t source = 0, target = 0;
    for (std::size_t axis = 0; axis < sizes_.size(); ++axis) {
      // Row-major offsets by Horner's rule: in the chunk, whose edges are padded, and in the rows of the
      // output.
      source = source * chunk_[axis] + place[axis] - origin[axis];
      target = target * sizes_[axis] + place[axis] - (axis == 0 ? begin : 0);
    }
    std::memcpy(rows + target * element_bytes_, from + source * element_bytes_,
                static_cast<std::size_t>(run_bytes));
  } while (advance(place, low, high, step));
}

}  // namespace fq::detail
