#pragma once

/// Histograms of magnitudes, and the ranges read from them (ModelOpt's HistogramCalibrator).

#include <cstdint>
#include <vector>

#include "fakequant/core/descriptor_fields.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// counts[i] values lie in [edges[i], edges[i+1]); the last bin includes its upper edge. Empty before the
/// first value.
struct Histogram {
  static constexpr int max_bins = 1 << 16;

  std::vector<std::int64_t> counts;
  std::vector<float> edges;  ///< one more than counts

  /// Counts |x|. The first values greater than 0 make the grid, `bins` bins over [0, largest]. A larger value
  /// later adds bins of the same width, up to `max_bins`; beyond that neighbours are joined, so that memory
  /// stays bounded. Zeros before the grid stand in `zeros`. `x` f32, finite, any layout.
  void collect(const Tensor& x, float largest, int bins, bool skip_zeros);
  std::int64_t zeros = 0;  ///< counted before there was a grid

  /// As numpy.histogram counts: the grid is even over [smallest, largest] magnitude of the first batch (or
  /// 0.5 to either side of a single value, [0, 1] without any), edges f32; a larger value later appends
  /// edges as numpy.arange makes them, and all are f64 from then on. Values below the grid are dropped. Bins
  /// are found by their edges, one value at a time: a plain loop. Throws ArgumentError where floats are too
  /// coarse for so many bins of a first batch.
  void collect_numpy(const Tensor& x, int bins, bool skip_zeros);
  std::vector<double> wide_edges = {};  ///< of that grid once it has grown: what `edges` rounds; else empty

  [[nodiscard]] std::int64_t total() const noexcept;
};

/// The left edge of the first bin at which `percentile` percent of the values are reached.
/// Throws ArgumentError outside of 0 .. 100, and, as the two below, for counts that are negative, pass 2^62
/// together, or are not one fewer than the edges.
[[nodiscard]] float amax_by_percentile(const Histogram& histogram, double percentile);

/// The edge that loses least information: the smallest Kullback-Leibler divergence between the histogram cut
/// at the edge and itself in 2^(bits-1+unsigned) levels, the last of equals, among start_bin, start_bin +
/// stride, ... bins. Bin 0 counts as bin 1. A cut that keeps no value is none of them; `exact` takes the last
/// such cut where there is one, as ModelOpt's argmin does, to which its divergence of 0 / 0 is the smallest.
/// `divergences`, when given, receives one value a candidate, infinity for those. Throws ArgumentError for a
/// float format, bits outside 2 .. 16, stride < 1, start_bin outside 1 .. bins.
[[nodiscard]] float amax_by_entropy(const Histogram& histogram, NumBits num_bits, bool is_unsigned,
                                    int stride, int start_bin, std::vector<double>* divergences = nullptr,
                                    bool exact = false);

/// The bin centre c[k] with the smallest mean squared error of fake quantizing the bin centres with amax =
/// c[k] (narrow range), weighted by counts, the first of equals, among k = start_bin, start_bin + stride, ...
/// Throws ArgumentError as above, with (4,3) the one float format, start_bin from 0 and below bins.
[[nodiscard]] float amax_by_mse(const Histogram& histogram, NumBits num_bits, bool is_unsigned, int stride,
                                int start_bin, std::vector<double>* errors = nullptr);

}  // namespace fq
