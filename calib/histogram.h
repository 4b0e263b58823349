#pragma once

/// Histograms of magnitudes, functions that compute amax from them, and HistogramCalibrator (as in ModelOpt).
///
///     HistogramCalibrator calibrator("entropy");
///     for (const Tensor& batch : batches) calibrator.collect(batch);
///     const Tensor by_entropy = calibrator.compute_amax();
///     const float by_mse = amax_by_mse(calibrator.histogram(), 8, false, 1, 128);
///
/// One histogram serves all methods and formats: collect once, then compare.

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

  /// Counts |x|. `x` is f32, finite, of any layout; `largest` is its largest magnitude. The first batch with
  /// values above 0 sets the edges: `bins` bins over [0, largest]. A larger value later adds bins of the same
  /// width, up to `max_bins`. Beyond that, neighbouring bins are merged, so that memory stays bounded.
  /// Earlier zeros are counted in `zeros`.
  void collect(const Tensor& x, float largest, int bins, bool skip_zeros);
  std::int64_t zeros = 0;  ///< zeros counted before the edges were set

  /// Counts as numpy.histogram. Edges are even over the [smallest, largest] magnitude of the first batch, in
  /// f32. A single value gets 0.5 to either side, an empty batch [0, 1]. A larger value later appends the
  /// edges of numpy.arange, and all edges are f64 from then on. Values below the first edge are dropped. A
  /// plain loop finds the bin of each value: the function exists for its bits, not for speed. Throws
  /// ArgumentError if f32 is too coarse for the number of bins in the first batch.
  void collect_numpy(const Tensor& x, int bins, bool skip_zeros);
  std::vector<double> wide_edges = {};  ///< f64 edges of collect_numpy after its first growth; else empty

  /// Returns the sum of the counts.
  [[nodiscard]] std::int64_t total() const noexcept;
};

/// Returns the left edge of the first bin at which `percentile` percent of the values are reached.
///
/// Throws ArgumentError outside of 0 .. 100. Like the next two functions, throws ArgumentError for negative
/// counts, for a sum above 2^62, and if there is not one edge more than counts.
[[nodiscard]] float amax_by_percentile(const Histogram& histogram, double percentile);

/// Returns the edge with the smallest loss of information: the smallest Kullback-Leibler divergence between
/// the histogram cut at the edge and its quantization to 2^(bits-1+unsigned) levels. Candidates are
/// start_bin, start_bin + stride, ... bins; the last of equals wins. Bin 0 gets the count of bin 1.
///
/// A cut without values is not a candidate. With `exact`, the last such cut wins if there is one: ModelOpt's
/// argmin treats its divergence of 0 / 0 as the smallest. `divergences`, if given, receives one value per
/// candidate, infinity for these cuts.
///
/// `limits_clipping` excludes cuts that clip more than one value in (number of levels). Spikes are ignored:
/// bins with more than 16 times the mean of their filled neighbors, for example constants of blank samples.
///
/// Throws ArgumentError for a float format, bits outside 2 .. 16, stride < 1, start_bin outside 1 .. bins.
[[nodiscard]] float amax_by_entropy(const Histogram& histogram, NumBits num_bits, bool is_unsigned,
                                    int stride, int start_bin, std::vector<double>* divergences = nullptr,
                                    bool exact = false, bool limits_clipping = false);

/// Returns the bin center c[k] with the smallest mean squared error of fake quantizing all bin centers with
/// amax = c[k] (narrow range), weighted by counts. Candidates are k = start_bin, start_bin + stride, ...; the
/// first of equals wins. `errors`, if given, receives one value per candidate. Throws ArgumentError as above.
/// The only float format is (4,3), and start_bin is 0 to bins - 1.
[[nodiscard]] float amax_by_mse(const Histogram& histogram, NumBits num_bits, bool is_unsigned, int stride,
                                int start_bin, std::vector<double>* errors = nullptr);

/// Counts |x| of all batches in a histogram whose range grows, and reads amax from it by percentile, entropy,
/// mean squared error or OCTAV. Per tensor only; `make_calibrator` supports kept axes. Counts have 64 bits.
/// The bins depend on the first batch, so these calibrators do not merge; the "one_pass" methods do.
class HistogramCalibrator final : public Calibrator {
 public:
  /// `method` is the default of AmaxOptions::method: "percentile", "entropy", "mse" or "octav"; "histogram"
  /// means percentile. Throws ArgumentError for another method, kept axes, or num_bins outside 2 .. 65536.
  explicit HistogramCalibrator(std::string_view method = "percentile", const CalibratorOptions& options = {});

  [[nodiscard]] std::string_view method() const noexcept override { return method_; }
  /// The counts of all batches so far.
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
/// (n = 4^-bits / 12 for unsigned formats) starts at s = 0 and ends if s repeats, after at most 64 steps; in
/// double. The result is the s with the smallest error n * s^2 * count [0 < |x| <= s] + sum (|x| - s)^2
/// [|x| > s] among all steps, the first of equals. This is the last s unless the iteration turns back. The
/// result is 0 if all values are 0.
///
/// Returns one clip for each index of the kept axes, f32, in the shape of MaxCalibrator's amax. x is f32, f16
/// or bf16, or f64 rounded to f32; any layout. Throws ArgumentError for an empty tensor, for a float format
/// (its steps are not even), and for bits outside 2 .. 16. Throws NumericError for NaN and Inf.
[[nodiscard]] Tensor octav_amax(const Tensor& x, const Axes& axis, NumBits num_bits, bool is_unsigned);

/// Returns the OCTAV clip of the bin centers, weighted by their counts. Zeros in the first bin count as small
/// values, so collect with skip_zeros. Throws ArgumentError for formats as `octav_amax`, and for counts as
/// `amax_by_percentile`.
[[nodiscard]] float amax_by_octav(const Histogram& histogram, NumBits num_bits, bool is_unsigned);

}  // namespace fq
