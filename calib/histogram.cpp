#include "fakequant/calib/histogram.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fakequant/calib/detail/ranges.h"

namespace fq {
namespace {

/// The bits of `torch.arange` on one thread: in all whole pairs of eight values the first of eight is rounded
/// to float before the others are added to it.
std::vector<float> even_edges(float width, std::size_t bins) {
  constexpr std::size_t kLanes = 8;
  std::vector<float> edges(bins + 1);
  const std::size_t paired = edges.size() / (2 * kLanes) * (2 * kLanes);
  const double step = width;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const std::size_t lane = i < paired ? i % kLanes : 0;
    const auto first = static_cast<float>(step * static_cast<double>(i - lane));
    edges[i] = static_cast<float>(static_cast<double>(first) + step * static_cast<double>(lane));
  }
  return edges;
}

// Halves the number of bins in place. The reference has no limit; here memory stays bounded.
void join_neighbours(std::vector<std::int64_t>& counts) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (i % 2 == 0)
      counts[i / 2] = counts[i];
    else
      counts[i / 2] += counts[i];
  }
  counts.resize((counts.size() + 1) / 2);
}

void grow(Histogram& h, float largest) {
  float width = h.edges[1] - h.edges[0];
  while (!(std::ceil(largest / width) <= static_cast<float>(Histogram::max_bins))) {
    join_neighbours(h.counts);
    width *= 2;
  }
  h.counts.resize(std::max(h.counts.size(), static_cast<std::size_t>(std::ceil(largest / width))));
  h.edges = even_edges(width, h.counts.size());
}

}  // namespace

void Histogram::collect(const Tensor& x, float largest, int bins, bool skip_zeros) {
  // The width would be 0 for a batch of zeros, or of values whose quotient underflows: no grid yet.
  if (counts.empty() && !(largest / static_cast<float>(bins) > 0)) {
    zeros += skip_zeros ? 0 : x.numel();
    return;
  }
  if (counts.empty()) {
    counts.resize(static_cast<std::size_t>(bins));
    counts[0] = zeros;
    edges = detail::linspace(0, largest, bins + 1);
  } else if (largest > edges.back()) {
    grow(*this, largest);
  }
  // bin = int(fl(fl(x * n) / top)), in f32 as in ModelOpt (tests/golden/calibrators.h5).
  const float top = edges.back();
  detail::count(x, {static_cast<float>(counts.size()), top, top, skip_zeros}, counts);
}

std::int64_t Histogram::total() const noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace fq
