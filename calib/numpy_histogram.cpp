#include <algorithm>
#include <cmath>

#include "fakequant/calib/histogram.h"
#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

constexpr const char* kNumpy = "histogram_calibrator";

std::vector<float> magnitudes(const Tensor& x, bool skip_zeros) {
  std::vector<float> out;
  for (const float v : x.to_vector<float>())
    if (v != 0 || !skip_zeros) out.push_back(std::fabs(v));
  return out;
}

/// As numpy.linspace in numbers of type T.
template <class T>
std::vector<float> even_edges(T first, T last, int bins) {
  const T step = (last - first) / static_cast<T>(bins);
  std::vector<float> edges;
  for (int i = 0; i < bins; ++i) edges.push_back(static_cast<float>(static_cast<T>(i) * step + first));
  edges.push_back(static_cast<float>(last));
  FQ_CHECK(std::ranges::adjacent_find(edges, std::ranges::greater_equal()) == edges.end(), kNumpy,
           "there are fewer than {} floats from {} to {}: use fewer bins, or the torch grid", bins, first,
           last);
  return edges;
}

std::vector<float> first_edges(const std::vector<float>& values, int bins) {
  // numpy.histogram: [0, 1] without values, in f64; half a unit to either side of a single value.
  if (values.empty()) return even_edges(0.0, 1.0, bins);
  const auto [smallest, largest] = std::ranges::minmax(values);
  return smallest == largest ? even_edges(smallest - 0.5f, largest + 0.5f, bins)
                             : even_edges(smallest, largest, bins);
}

/// The bin of even ones as numpy.histogram finds it: by its position, put right by the edges.
std::size_t even_bin(const std::vector<float>& edges, float v) {
  const std::size_t bins = edges.size() - 1;
  const float position = (v - edges[0]) / (edges.back() - edges[0]) * static_cast<float>(bins);
  std::size_t i = std::min(static_cast<std::size_t>(position), bins - 1);
  // The quotient may round into a neighbouring bin; the edges decide.
  if (v < edges[i]) --i;
  return v >= edges[i + 1] && i != bins - 1 ? i + 1 : i;
}

/// The bin between edges of any widths; the last one has its upper edge too.
template <class T>
std::size_t find_bin(const std::vector<T>& edges, float v) {
  const auto above = std::upper_bound(edges.begin(), edges.end() - 1, static_cast<T>(v)) - edges.begin();
  return static_cast<std::size_t>(above - 1);
}

/// Edges of numpy.arange from one width above the last edge to one above `largest`. Its length is computed in
/// type T, and its step is the difference of its first two values.
template <class T>
std::vector<double> more_edges(const std::vector<T>& edges, float largest) {
  const T width = edges[1] - edges[0], start = edges.back() + width, stop = static_cast<T>(largest) + width;
  const auto more = std::ceil(static_cast<double>((stop - start) / width));
  FQ_CHECK(static_cast<double>(edges.size()) + more <= Histogram::max_bins, kNumpy,
           "a value of {} needs more than {} bins of width {}: use the torch grid, which joins bins", largest,
           +Histogram::max_bins, width);
  const double first = static_cast<double>(start), step = static_cast<double>(start + width) - first;
  std::vector<double> out(edges.begin(), edges.end());
  for (int i = 0; i < static_cast<int>(more); ++i) out.push_back(first + step * i);
  return out;
}

template <class T, class F>
void count(const std::vector<float>& values, const std::vector<T>& edges, std::vector<std::int64_t>& counts,
           F&& bin) {
  counts.resize(edges.size() - 1);
  for (const float v : values)
    if (static_cast<T>(v) >= edges.front() && static_cast<T>(v) <= edges.back()) ++counts[bin(edges, v)];
}

}  // namespace

void Histogram::collect_numpy(const Tensor& x, int bins, bool skip_zeros) {
  const auto values = magnitudes(x, skip_zeros);
  if (edges.empty()) {
    edges = first_edges(values, bins);
    return count(values, edges, counts, even_bin);
  }
  if (values.empty()) return;
  const float largest = *std::ranges::max_element(values);
  // From the first growth on, numpy keeps all edges in f64 and compares with those. `edges` has the same
  // edges rounded to f32, for the readers.
  if (wide_edges.empty() ? largest > edges.back() : static_cast<double>(largest) > wide_edges.back()) {
    wide_edges = wide_edges.empty() ? more_edges(edges, largest) : more_edges(wide_edges, largest);
    edges.assign(wide_edges.begin(), wide_edges.end());
  }
  if (wide_edges.empty()) return count(values, edges, counts, find_bin<float>);
  count(values, wide_edges, counts, find_bin<double>);
}

}  // namespace fq
