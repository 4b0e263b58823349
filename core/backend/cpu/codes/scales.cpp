#include <algorithm>

#include "fakequant/core/backend/cpu/codes/quantize_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/detail/quantizer_checks.h"

namespace fq::cpu {
namespace {

constexpr std::int64_t kScaleChunk = 4096;

}  // namespace

void make_scales(Grid& grid, const detail::ScaleRule& rule, const std::string&) {
  auto* ranges = grid.amax.mutable_data<float>(grid.amax.layout());
  auto* scales = grid.scale.mutable_data<float>(grid.scale.layout());
  const std::int64_t count = grid.amax.numel(), chunks = (count + kScaleChunk - 1) / kScaleChunk;
  bool good = true;
#pragma omp parallel for schedule(static) reduction(&& : good) if (chunks > 4)
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t begin = c * kScaleChunk, size = std::min(kScaleChunk, count - begin);
    good = range_scales(rule, ranges + begin, size, scales + begin) && good;
  }
  if (good) return;
  for (std::int64_t i = 0; i < count; ++i) detail::check_amax(ranges[i], grid.name);
}

void open_ranges(const Tensor& amax, Tensor& out) {
  const auto* from = amax.data<float>();
  auto* to = out.mutable_data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i) to[i] = detail::open_range(from[i]);
}

}  // namespace fq::cpu
