#include "fakequant/core/backend/cpu/codes/range_gradients.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fakequant/core/backend/cpu/codes/grid.h"
#include "fakequant/core/backend/cpu/codes/share_kernels.h"
#include "fakequant/core/blocks/detail/block_map.h"

namespace fq::cpu {
namespace {

using detail::BlockMap;
using detail::GridRow;

/// Elements whose shares are added up by one thread: the order of sums depends on it, never on the threads.
constexpr std::int64_t kChunk = 8192;

/// What a chunk adds to a range.
using Part = std::pair<std::int64_t, double>;

/// What the elements [begin, end) of one range add to its gradient.
struct Shares {
  const float *x, *dy;
  const float* q;  ///< values of the codes; null for clip

  [[nodiscard]] double sum(std::int64_t begin, std::int64_t end, const GridRow& row) const {
    if (q == nullptr) return clip_sum(x + begin, dy + begin, end - begin, row);
    return lsq_sum(x + begin, q + begin, dy + begin, end - begin, row);
  }
};

std::vector<double> sums(const Tensor& x, const QuantizedTensor& codes, const Tensor& dy, bool lsq) {
  const auto rows = grid_rows(codes.spec);
  std::vector<double> out(rows.size());
  if (x.numel() == 0) return out;
  const Layout layout = x.layout();
  const Tensor values = lsq ? code_values(codes) : Tensor();
  const Shares shares{x.data<float>(layout), dy.data<float>(layout),
                      lsq ? values.data<float>(layout) : nullptr};
  const auto map = BlockMap::of(x.shape(), codes.spec.granularity.block_shape(x.shape()), layout);
  const std::int64_t count = x.numel(), chunks = (count + kChunk - 1) / kChunk;
  std::vector<std::vector<Part>> parts(static_cast<std::size_t>(chunks));
#pragma omp parallel for schedule(static) if (chunks > 2)
  for (std::int64_t c = 0; c < chunks; ++c) {
    auto& own = parts[static_cast<std::size_t>(c)];
    const auto add = [&](std::int64_t begin, std::int64_t end, std::int64_t j) {
      own.emplace_back(j, shares.sum(begin, end, rows[static_cast<std::size_t>(j)]));
    };
    map.for_runs(c * kChunk, std::min(count, (c + 1) * kChunk),
                 [&](std::int64_t begin, std::int64_t end, std::int64_t j, std::int64_t step) {
                   if (step == 0) return add(begin, end, j);
                   for (std::int64_t i = begin; i < end; ++i) add(i, i + 1, j + i - begin);
                 });
  }
  for (const auto& own : parts)
    for (const auto& [j, sum] : own) out[static_cast<std::size_t>(j)] += sum;
  return out;
}

}  // namespace

void amax_gradient(const Tensor& x, const QuantizedTensor& codes, const Tensor& dy, bool lsq, double divisor,
                   float factor, Tensor& out) {
  const auto total = sums(x, codes, dy, lsq);
  auto* values = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    values[i] = static_cast<float>(total[static_cast<std::size_t>(i)] / divisor) * factor;
}

}  // namespace fq::cpu
