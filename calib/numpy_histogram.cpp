#include <algorithm>
#include <cmath>

#include "fakequant/calib/histogram.h"
#include "fakequant/core/check.h"

namespace fq {
namespace {

std::vector<float> magnitudes(const Tensor& x, bool skip_zeros) {
  std::vector<float> out;
  for (const float v : x.to_vector<float>())
    if (v != 0 || !skip_zeros) out.push_back(std::fabs(v));
  return out;
}

/// As numpy.linspace.
std::vector<float> even_edges(double first, double last, int bins) {
  if (first == last) {
    first -= 0.5;
    last += 0.5;
  }
  const double step = (last - first) / bins;
  std::vector<float> edges;
  for (int i = 0; i < bins; ++i) edges.push_back(static_cast<float>(first + step * i));
  edges.push_back(static_cast<float>(last));
  return edges;
}

/// As numpy.arange from one width above the last edge to one above `largest`: the step is that of the first
/// two values.
void append_edges(std::vector<float>& edges, float largest) {
  const float width = edges[1] - edges[0], start = edges.back() + width;
  const double more = std::ceil((static_cast<double>(largest + width) - static_cast<double>(start)) /
                                static_cast<double>(width));
  FQ_CHECK(static_cast<double>(edges.size()) + more <= Histogram::max_bins, "histogram_calibrator",
           "a value of {} needs more than {} bins of width {}: use the torch grid, which joins bins", largest,
           +Histogram::max_bins, width);
  const double step = static_cast<double>((start + width) - start);
  for (int i = 0; i < static_cast<int>(more); ++i)
    edges.push_back(static_cast<float>(static_cast<double>(start) + step * i));
}

}  // namespace

void Histogram::collect_numpy(const Tensor& x, int bins, bool skip_zeros) {
  const auto values = magnitudes(x, skip_zeros);
  if (values.empty()) return;
  const auto [smallest, largest] = std::ranges::minmax(values);
  auto grid = edges;
  if (grid.empty())
    grid = even_edges(static_cast<double>(smallest), static_cast<double>(largest), bins);
  else if (largest > grid.back())
    append_edges(grid, largest);
  edges = std::move(grid);
  counts.resize(edges.size() - 1);
  for (const float v : values) {
    if (v < edges.front() || v > edges.back()) continue;
    const auto above = std::upper_bound(edges.begin(), edges.end() - 1, v) - edges.begin();
    ++counts[static_cast<std::size_t>(above - 1)];
  }
}

}  // namespace fq
