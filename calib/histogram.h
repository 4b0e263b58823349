#pragma once

/// Histograms of magnitudes, the ranges read from them, and the calibrator that fills one (ModelOpt's
/// HistogramCalibrator).
///
///     HistogramCalibrator calibrator("entropy");
///     for (const Tensor& batch : batches) calibrator.collect(batch);
///     const Tensor by_entropy = calibrator.compute_amax();
///     const float by_mse = amax_by_mse(calibrator.histogram(), 8, false, 1, 128);
///
/// One histogram answers for every method and format: collect once, compare as often as you like.

#include <cstdint>
#include <vector>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// Counts of magnitudes: counts[i] values are in [edges[i], edges[i+1]), and the last bin includes its upper
/// edge. Both lists are empty before the first value.
struct Histogram {
  static constexpr int max_bins = 1 << 16;

  std::vector<std::int64_t> counts;
  std::vector<float> edges;  ///< one more than counts

  /// Counts |x|, where `x` is f32, finite, of any layout, and `largest` its largest magnitude. The first
  /// values greater than 0 make the grid, `bins` bins over [0, largest]. A larger value later adds bins of
  /// the same width, up to `max_bins`; beyond that neighbours are joined, so that memory stays bounded. Zeros
  /// before the grid exists are counted in `zeros`.
  void collect(const Tensor& x, float largest, int bins, bool skip_zeros);
  std::int64_t zeros = 0;  ///< counted before there was a grid

  /// Counts as numpy.histogram does: the grid is even over [smallest, largest] magnitude of the first batch
  /// (or 0.5 to either side of a single value, [0, 1] without any), with edges in f32; a larger value later
  /// appends edges as numpy.arange makes them, and all are f64 from then on. Values below the grid are
  /// dropped. Bins are found by their edges, one value at a time, in a plain loop: it is there for its bits,
  /// not for speed. Throws ArgumentError if floats are too coarse for the number of bins in the first batch.
  void collect_numpy(const Tensor& x, int bins, bool skip_zeros);
  std::vector<double> wide_edges = {};  ///< of that grid once it has grown: what `edges` rounds; else empty

  /// The sum of the counts.
  [[nodiscard]] std::int64_t total() const noexcept;
};

/// The left edge of the first bin at which `percentile` percent of the values are reached.
///
/// Throws ArgumentError outside of 0 .. 100, and, as the two below, for counts that are negative, pass 2^62
/// together, or are not one fewer than the edges.
[[nodiscard]] float amax_by_percentile(const Histogram& histogram, double percentile);

/// The edge with the smallest loss of information: the smallest Kullback-Leibler divergence between the
/// histogram cut at the edge and itself in 2^(bits-1+unsigned) levels, the last of equals, among start_bin,
/// start_bin + stride, ... bins. Bin 0 counts as bin 1.
///
/// A cut that keeps no value is not a candidate. `exact` uses the last such cut if there is one,
/// as ModelOpt's argmin does, which treats its divergence of 0 / 0 as the smallest. `divergences`, when
/// given, receives one value a candidate, infinity for those.
///
/// `limits_clipping` excludes cuts that clip more than one value in (number of levels). Spikes
/// do not count there: bins with more than 16 times the mean of their filled neighbors, as the constants that
/// blank samples give.
///
/// Throws ArgumentError for a float format, bits outside 2 .. 16, stride < 1, start_bin outside 1 .. bins.
[[nodiscard]] float amax_by_entropy(const Histogram& histogram, NumBits num_bits, bool is_unsigned,
                                    int stride, int start_bin, std::vector<double>* divergences = nullptr,
                                    bool exact = false, bool limits_clipping = false);

/// The bin centre c[k] with the smallest mean squared error of fake quantizing the bin centres with amax =
/// c[k] (narrow range), weighted by counts, the first of equals, among k = start_bin, start_bin + stride, ...
/// `errors`, when given, receives one value a candidate. Throws ArgumentError as above, with (4,3) as the one
/// float format, and start_bin from 0 and below bins.
[[nodiscard]] float amax_by_mse(const Histogram& histogram, NumBits num_bits, bool is_unsigned, int stride,
                                int start_bin, std::vector<double>* errors = nullptr);

/// Counts |x| of all batches in a histogram whose range grows, and reads amax from it by percentile, entropy,
/// mean squared error or OCTAV. It is per tensor only (`make_calibrator` has one for each channel). Counts
/// have 64 bits. The bins depend on the first batch: it does not merge; the "one_pass" methods do.
class HistogramCalibrator final : public Calibrator {
 public:
  /// `method` is what compute_amax uses when its options name none: "percentile", "entropy", "mse" or
  /// "octav"; "histogram" means percentile. Throws ArgumentError for another method, kept axes, or num_bins
  /// outside 2 .. 65536.
  explicit HistogramCalibrator(std::string_view method = "percentile", const CalibratorOptions& options = {});

  [[nodiscard]] std::string_view method() const noexcept override { return method_; }
  /// The counts so far.
  [[nodiscard]] const Histogram& histogram() const noexcept { return histogram_; }

 protected:
  void do_collect(const Tensor& x, float largest) override;
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override { histogram_ = {}; }
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  std::string method_;
  int num_bins_;
  bool skip_zeros_;
  HistogramGrid grid_;
  Histogram histogram_;
};

/// OCTAV: the clip with the smallest mean squared error of quantization (Sakr et al., "Optimal Clipping and
/// Magnitude-aware Differentiation for Improved Quantization-aware Training", ICML 2022). Newton's iteration
///
///     s' = sum |x| [|x| > s] / (n * count [0 < |x| <= s] + count [|x| > s])       n = 4^-bits / 3
///
/// (n = 4^-bits / 12 of unsigned formats) from s = 0 on, until s stays, at most 64 times; in double. The
/// answer is the s met on the way with the smallest n * s^2 * count [0 < |x| <= s] + sum (|x| - s)^2
/// [|x| > s], the first of equals: the last s but where Newton turns back. It is 0 without values other than
/// zeros.
///
/// There is one for each index of the kept axes, f32, of the shape that MaxCalibrator gives. x is f32, f16 or
/// bf16, or f64 rounded to f32; any layout. Throws ArgumentError for an empty tensor, for a float format,
/// whose steps are not even, and bits outside 2 .. 16; NumericError for NaN and Inf.
[[nodiscard]] Tensor octav_amax(const Tensor& x, const Axes& axis, NumBits num_bits, bool is_unsigned);

/// The OCTAV clip of bin centres weighted by their counts. Zeros in the first bin count
/// as small values, so collect with skip_zeros. Throws ArgumentError for the formats that `octav_amax`
/// refuses and the counts that `amax_by_percentile` refuses.
[[nodiscard]] float amax_by_octav(const Histogram& histogram, NumBits num_bits, bool is_unsigned);

}  // namespace fq
