#pragma once

/// What chains of blocks read and write, made of tensors: codes and scales in strips, and outputs with room
/// for a whole number of strips.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/cpu/engines/chain_kernels.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

inline std::int64_t padded(std::int64_t outputs) {
  return (outputs + chain_width - 1) / chain_width * chain_width;
}

/// The rows of `from` [outputs, columns] by strips, `together` of their elements at a time: [padded outputs /
/// chain_width, columns / together, chain_width, together].
template <class To, class From>
std::vector<To> in_strips(const From* from, std::int64_t outputs, std::int64_t columns,
                          std::int64_t together) {
  std::vector<To> out(static_cast<std::size_t>(padded(outputs) * columns));
#pragma omp parallel for schedule(static) if (outputs * columns > parallel_elements)
  for (std::int64_t n = 0; n < outputs; ++n) {
    const std::int64_t in_strip = n % chain_width;
    To* to = out.data() + (n - in_strip) * columns + in_strip * together;
    for (std::int64_t k = 0; k < columns; k += together)
      for (std::int64_t i = 0; i < together; ++i)
        to[k * chain_width + i] = static_cast<To>(from[n * columns + k + i]);
  }
  return out;
}

inline std::vector<float> scales_in_strips(const Tensor& w, const Tensor& scales) {
  const std::int64_t blocks = scales.numel() / std::max<std::int64_t>(w.dim(0), 1);
  return in_strips<float>(scales.data<float>(), w.dim(0), blocks, 1);
}

template <class To>
std::vector<To> codes_as(const Tensor& x, std::int32_t offset) {
  std::vector<To> out(static_cast<std::size_t>(x.numel()));
  const auto* in = x.data<std::int8_t>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<To>(in[i] + offset);
  return out;
}

/// y [rows, outputs] with room for the padded ones.
class PaddedOutputs {
 public:
  explicit PaddedOutputs(Tensor& y) : y_(y), width_(padded(y.dim(1))) {
    if (width_ != y.dim(1)) room_.resize(static_cast<std::size_t>(y.dim(0) * width_));
  }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] float* data() { return room_.empty() ? y_.mutable_data<float>() : room_.data(); }
  /// Every output becomes f(its row, its place in it, its value).
  template <class F>
  void finish(const F& f) {
    const std::int64_t rows = y_.dim(0), outputs = y_.dim(1);
    const float* in = data();
    auto* out = y_.mutable_data<float>();
#pragma omp parallel for schedule(static) if (y_.numel() > parallel_elements)
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t n = 0; n < outputs; ++n) out[m * outputs + n] = f(m, n, in[m * width_ + n]);
  }

 private:
  Tensor& y_;
  std::int64_t width_;
  std::vector<float> room_;
};

/// The strip from output n.
inline BlockChains strip_of(BlockChains all, std::int64_t n) {
  all.w += n * all.columns;
  all.w_scale += n * (all.columns / all.block);
  if (all.subtract != nullptr) all.subtract += n * (all.columns / all.block);
  all.y += n;
  return all;
}
inline LaneChains strip_of(LaneChains all, std::int64_t n) {
  all.w += n * all.columns;
  all.w_scale += n * (all.columns / lane_block);
  all.y += n;
  return all;
}

/// Rows of x that share what is read of a weight.
constexpr std::int64_t rows_at_once = 64;

/// Every part of the result, by rows and strips.
template <class Run>
void for_parts(std::int64_t rows, std::int64_t columns, std::int64_t width, const Run& run) {
#pragma omp parallel for collapse(2) schedule(static) if (rows * columns * width > parallel_elements)
  for (std::int64_t row = 0; row < rows; row += rows_at_once)
    for (std::int64_t n = 0; n < width; n += chain_width) run(row, std::min(rows, row + rows_at_once), n);
}

}  // namespace fq::cpu
