#include "fakequant/train/calibration/detail/error_sums.h"

#include <algorithm>
#include <vector>

namespace fq::detail {
namespace {

constexpr std::int64_t kErrorBlock = 1 << 14;

ErrorSums block_sums(const float* x, const float* y, const double* counts, std::int64_t size) {
  ErrorSums out;
  for (std::int64_t i = 0; i < size; ++i) {
    const double value = x[i], error = static_cast<double>(y[i]) - value;
    const double count = counts == nullptr ? 1 : counts[i];
    out.error += error * error * count;
    out.signal += value * value * count;
  }
  return out;
}

}  // namespace

ErrorSums error_sums(const Tensor& values, const Tensor& others, std::span<const double> counts) {
  const Tensor x = values.to(Device::cpu()), y = others.to(Device::cpu());
  const float *a = x.data<float>(x.layout()), *b = y.data<float>(x.layout());
  const double* c = counts.empty() ? nullptr : counts.data();
  std::vector<ErrorSums> blocks(static_cast<std::size_t>((x.numel() + kErrorBlock - 1) / kErrorBlock));
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(blocks.size()); ++i) {
    const std::int64_t at = i * kErrorBlock;
    blocks[static_cast<std::size_t>(i)] =
        block_sums(a + at, b + at, c == nullptr ? c : c + at, std::min(kErrorBlock, x.numel() - at));
  }
  ErrorSums out;
  for (const auto& block : blocks) {
    out.error += block.error;
    out.signal += block.signal;
  }
  return out;
}

}  // namespace fq::detail
