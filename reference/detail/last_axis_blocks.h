#pragma once

/// Loops over blocks along the last axis, any float type computed in f32.

#include <vector>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/reference/detail/float_blocks.h"

namespace fq::detail {

/// y = f(x): f(in, out, count, j) fills the f32 values of block j, which are rounded to the type of y. Blocks
/// have `length` elements of a row, the last of a row fewer where the length does not divide it, and are
/// numbered through all rows. x and y are row-major and have one shape. Calls may come from several threads.
template <class F>
void map_last_axis_blocks(const Tensor& x, std::int64_t length, Tensor& y, F&& f) {
  const std::int64_t count = x.numel(), columns = x.rank() == 0 ? 1 : x.shape().back();
  if (count == 0) return;
  const std::int64_t row = columns % length == 0 ? count : columns;
  const std::int64_t step = std::max(chunk_elements / length, std::int64_t{1}) * length;
  const std::int64_t blocks = (row + length - 1) / length, chunks = (row + step - 1) / step;
  void* out = y.mutable_raw();
  FirstError error;
#pragma omp parallel if (count > cpu::parallel_elements)
  {
    std::vector<float> inputs, results;
    const bool made = error.keep([&] {
      inputs.resize(static_cast<std::size_t>(step));
      results.resize(inputs.size());
    });
    const auto map = [&](std::int64_t chunk) {
      const std::int64_t first = chunk % chunks * step, size = std::min(step, row - first);
      const std::int64_t begin = chunk / chunks * row + first;
      const std::int64_t j = chunk / chunks * blocks + first / length;
      const float* in = read_floats(x, begin, size, inputs.data());
      float* to = y.dtype() == DType::f32 ? static_cast<float*>(out) + begin : results.data();
      for (std::int64_t i = 0; i < size; i += length)
        f(in + i, to + i, std::min(length, size - i), j + i / length);
      if (y.dtype() != DType::f32) write_floats(to, size, y.dtype(), out, begin);
    };
#pragma omp for schedule(static)
    for (std::int64_t chunk = 0; chunk < count / row * chunks; ++chunk)
      if (made) map(chunk);
  }
  error.rethrow();
}

/// As map_blocks, for blocks that divide the rows, with a second step for whole groups of blocks: finish(out,
/// count) changes the results of the blocks that fit a chunk.
template <class F, class Finish>
void map_block_groups(const Tensor& x, std::int64_t length, Tensor& y, F&& f, Finish&& finish) {
  const std::int64_t blocks = std::max(chunk_elements / length, std::int64_t{1});
  Tensor flat = y.reshape({y.numel()});
  map_last_axis_blocks(x.reshape({x.numel()}), blocks * length, flat,
                       [&](const float* in, float* out, std::int64_t count, std::int64_t group) {
                         for (std::int64_t b = 0; b * length < count; ++b)
                           f(in + b * length, out + b * length, length, group * blocks + b);
                         finish(out, count);
                       });
}

}  // namespace fq::detail
