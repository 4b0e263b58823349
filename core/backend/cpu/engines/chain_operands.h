#pragma once

/// Operands of chains of blocks, converted from tensors: codes and scales in strips, and outputs padded to
/// whole strips.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engines/chain_kernels.h"
#include "fakequant/core/backend/cpu/memory/host_memory.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

inline std::int64_t padded(std::int64_t outputs) {
  return (outputs + chain_width - 1) / chain_width * chain_width;
}

/// Returns the rows of `from` [outputs, columns] in strips, with `together` consecutive elements of a row:
/// [padded outputs / chain_width, columns / together, chain_width, together].
template <std::int64_t together, class To, class From>
ArenaVector<To> pack_strips(const From* from, std::int64_t outputs, std::int64_t columns) {
  ArenaVector<To> out(static_cast<std::size_t>(padded(outputs) * columns));
#pragma omp parallel for schedule(static) if (outputs * columns > parallel_elements)
  for (std::int64_t first = 0; first < outputs; first += chain_width) {
    const std::int64_t high = std::min(chain_width, outputs - first);
    for (std::int64_t n = 0; n < high; ++n) {
      const From* row = from + (first + n) * columns;
      To* to = out.data() + first * columns + n * together;
      for (std::int64_t k = 0; k < columns; k += together)
        if constexpr (std::is_same_v<To, From>)
          std::memcpy(to + k * chain_width, row + k, together * sizeof(To));
        else
          for (std::int64_t i = 0; i < together; ++i) to[k * chain_width + i] = static_cast<To>(row[k + i]);
    }
  }
  return out;
}

inline ArenaVector<float> scales_in_strips(const Tensor& w, const Tensor& scales) {
  const std::int64_t blocks = scales.numel() / std::max<std::int64_t>(w.dim(0), 1);
  return pack_strips<1, float>(scales.data<float>(), w.dim(0), blocks);
}

/// Codes of x from row `first`, plus an offset, converted to another integer type.
template <class To>
class OffsetCodes {
 public:
  OffsetCodes(const Tensor& x, std::int32_t offset, std::int64_t first = 0)
      : bytes_(x.numel() * static_cast<std::int64_t>(sizeof(To)), Device::cpu()) {
    const auto* in = x.data<std::int8_t>();
    auto* out = reinterpret_cast<To*>(bytes_.mutable_data());
#pragma omp parallel for simd schedule(static) if (parallel : x.numel() > parallel_elements)
    for (std::int64_t i = first * x.dim(1); i < x.numel(); ++i) out[i] = static_cast<To>(in[i] + offset);
  }
  [[nodiscard]] const To* data() const { return reinterpret_cast<const To*>(bytes_.data()); }

 private:
  Storage bytes_;
};

/// y [rows, outputs] with padded outputs.
class PaddedOutputs {
 public:
  explicit PaddedOutputs(Tensor& y) : y_(y), width_(padded(y.dim(1))) {
    if (width_ != y.dim(1)) room_.resize(static_cast<std::size_t>(y.dim(0) * width_));
  }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] float* data() { return room_.empty() ? y_.mutable_data<float>() : room_.data(); }
  /// Copies the outputs to y after they are written.
  void finish() {
    const std::int64_t rows = y_.dim(0), outputs = y_.dim(1);
    if (room_.empty()) return;
    auto* out = y_.mutable_data<float>();
    for (std::int64_t m = 0; m < rows; ++m)
      std::copy_n(room_.data() + m * width_, outputs, out + m * outputs);
  }

 private:
  Tensor& y_;
  std::int64_t width_;
  ArenaVector<float> room_;
};

/// Returns the number of rows, at most `rows`, that `chain_blocks` may compute with tiles. 0 if the processor
/// has no AMX or this process may not use it (`tiles_allowed`).
inline std::int64_t tiled_rows(std::int64_t rows) {
  const std::int64_t high = tiles_allowed() ? rows_of_tiles() : 0;
  return high == 0 ? 0 : rows / high * high;
}

/// Returns the numbers, or zeros if null, padded with zeros.
inline std::vector<float> padded_numbers(std::int64_t width, const float* numbers, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(width), 0.0f);
  if (numbers != nullptr) std::copy_n(numbers, count, out.begin());
  return out;
}

/// Rows of x per part. They share reads of the weight.
constexpr std::int64_t rows_at_once = 64;

/// Outputs per part. Parts with tiles are larger, because each part sets up its tiles.
constexpr std::int64_t outputs_at_once(std::int64_t tiled_rows = 0) {
  return (tiled_rows > 0 ? 8 : 2) * chain_width;
}

/// Calls run(first row, end row, first output, end output) for every part of the result.
template <class Run>
void run_output_parts(std::int64_t rows, std::int64_t columns, std::int64_t width, std::int64_t outputs,
                      const Run& run) {
#pragma omp parallel for collapse(2) schedule(static) if (rows * columns * width > parallel_elements)
  for (std::int64_t row = 0; row < rows; row += rows_at_once)
    for (std::int64_t n = 0; n < width; n += outputs)
      run(row, std::min(rows, row + rows_at_once), n, std::min(width, n + outputs));
}

}  // namespace fq::cpu
