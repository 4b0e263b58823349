#pragma once

/// Calibrator: observes tensors and chooses amax, the largest magnitude that a quantizer represents.
///
///     auto calibrator = make_calibrator("entropy", {.num_bins = 4096});
///     for (const Tensor& batch : batches) calibrator->collect(batch);
///     const Tensor amax = calibrator->compute_amax();  // rank 0: per tensor
///
/// Each quantizer of a model has one (layers/quantizer/observer.h), and `calibrate`
/// (train/calibration/calibrate.h) feeds them all. docs/numerics.md has the formulas of the methods and their
/// sources.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/descriptor.h"
#include "fakequant/core/tensor.h"

namespace fq {

class StateDict;

/// Options of `compute_amax`. Histograms use all of them, `lsq` the bits and sign;
/// `max` and `moving_average` need none.
struct AmaxOptions {
  /// Method that reads a histogram: "percentile", "entropy", "mse" or "octav". Empty: the calibrator's own.
  std::string method = {};
  /// Percentage of values that are at most amax, 0 to 100. A smaller value clips more and makes steps finer.
  double percentile = 99.99;
  /// The codes that the range is chosen for (entropy, mse, octav, lsq).
  NumBits num_bits = 8;
  bool is_unsigned = false;  ///< whether these codes are unsigned
  /// Bins between candidates of entropy and mse. A larger stride is faster and coarser.
  int stride = 1;
  /// The first candidate of entropy and mse; lower bins are never the range.
  int start_bin = 128;
  /// Whether entropy clips at most one value in 2^(bits - 1 + unsigned), constants aside. Quantizers in
  /// `deployed` set it; ModelOpt's calibrators have no limit.
  bool limits_clipping = false;
};

/// Bins of a histogram: those of torch.histc over [0, largest] (ModelOpt's default), or bins of
/// numpy.histogram over [smallest, largest] of the first batch (its `torch_hist=False`).
enum class HistogramGrid : unsigned char { torch, numpy };

/// Options of a calibrator. Each method ignores the options of other methods.
struct CalibratorOptions {
  /// The kept axes: one amax for each index along them; empty: per tensor.
  Axes axis = {};
  int num_bins = 2048;      ///< of the first histogram
  bool skip_zeros = false;  ///< histograms and lsq do not count exact zeros
  HistogramGrid grid = HistogramGrid::torch;
  /// Momentum of a moving average: a += (1 - momentum) * (new - a), 0 to less than 1.
  double momentum = 0.99;
  /// The codes that mse_search and scale_sweep try.
  NumBits num_bits = 8;
  bool is_unsigned = false;   ///< whether these codes are unsigned
  bool narrow_range = false;  ///< whether the lowest signed code is excluded
  /// Candidates of mse_search: multiples of the first batch's largest |x|, from start_multiplier to
  /// stop_multiplier, evenly spaced, in steps of at most multiplier_step.
  double start_multiplier = 0.25;
  double stop_multiplier = 4.0;
  double multiplier_step = 0.1;
};

/// Collects batches and computes amax from them. `compute_amax` changes nothing, and more batches may follow.
/// Results do not depend on the number of threads. Not thread-safe. After an error the calibrator is
/// unchanged.
///
/// A custom calibrator overrides the protected functions. RangeObserver::set_calibrator installs it, and a
/// line in core/detail/calib_methods.def gives it a name (docs/developing.md).
class Calibrator {
 public:
  Calibrator() = default;
  virtual ~Calibrator() = default;
  Calibrator(const Calibrator&) = delete;  // a calibrator is owned by one quantizer
  Calibrator& operator=(const Calibrator&) = delete;

  /// Collects a batch: f32, f16, bf16, or f64 rounded to f32, in any layout and on any device. Empty and
  /// `meta` tensors change nothing. Throws NumericError for NaN and Inf. Throws ArgumentError for other
  /// dtypes, and if the sizes of the kept axes differ from earlier batches.
  void collect(const Tensor& x);
  /// Returns amax on the CPU, in the dtype of the first batch (f32 for f64). It has the rank of the batches,
  /// with size 1 along all axes that are not kept; a single element has rank 0. If every axis is kept,
  /// everything is reduced. Throws ArgumentError before the first batch, and for options that the method does
  /// not support.
  [[nodiscard]] Tensor compute_amax(const AmaxOptions& options = {}) const;
  /// Adds the data that `other` collected, as if this calibrator had collected its batches. For "max" and the
  /// "one_pass" methods the result has the bits of one run over all batches, for any split and order. For
  /// "lsq" it is equal up to rounding.
  ///
  /// Throws ArgumentError for calibrators of other methods, settings, shapes or dtypes, and for methods whose
  /// result depends on the order of batches. Both calibrators are then unchanged.
  void merge(const Calibrator& other);
  /// Discards all batches.
  void reset();

  /// Number of passes over the data: 2 if the first pass finds the bins and the second counts, else 1.
  [[nodiscard]] virtual int passes() const noexcept { return 1; }
  /// Starts the next pass. Does nothing for a calibrator with one pass.
  virtual void next_pass() {}

  /// Returns the collected data: tensors of the method, and attributes `method`, `minimum` and `dtype`. Empty
  /// before the first batch.
  [[nodiscard]] StateDict state_dict() const;
  /// Replaces the collected data by a state of `state_dict`. Results are then equal bit by bit. Throws
  /// ArgumentError for the state of another method and for a damaged state.
  void load_state(const StateDict& state);

  /// Whether no batch was collected.
  [[nodiscard]] bool empty() const noexcept { return !minimum_.has_value(); }
  /// Smallest collected value. If it is not negative, an unsigned format has finer steps at no loss.
  [[nodiscard]] std::optional<float> minimum() const noexcept { return minimum_; }
  /// Name of the method in `make_calibrator`.
  [[nodiscard]] virtual std::string_view method() const noexcept = 0;

 protected:
  /// Collects `x`, which is f32, finite, not empty, and on the device of the batch. `largest` is its largest
  /// magnitude. Collected data should be on the CPU.
  virtual void do_collect(const Tensor& x, float largest) = 0;
  /// Adds the data of `other`, which has the same method, and the same dtype unless one of both is empty. The
  /// default throws ArgumentError.
  virtual void do_merge(const Calibrator& other);
  /// Returns amax in f32. Called after the first batch only.
  [[nodiscard]] virtual Tensor do_compute(const AmaxOptions& options) const = 0;
  /// Discard, save and load the data of the method.
  virtual void do_reset() = 0;
  virtual void do_save(StateDict& state) const = 0;
  virtual void do_load(const StateDict& state) = 0;

 private:
  std::optional<float> minimum_;
  DType dtype_ = DType::f32;
};

/// Returns the calibrator of a method of QuantDescriptor::calib_methods():
///
/// - "max", "moving_average": see MaxCalibrator and MovingAverageCalibrator (calib/calibrator.h);
/// - "lsq": amax = bound * 2 * mean|x| / sqrt(bound), the initial step of a learned step size (Esser et al.,
///   "Learned Step Size Quantization", ICLR 2020). bound is the largest code of AmaxOptions::num_bits and
///   is_unsigned, which must be an integer format. The mean is over all values of all batches, in double.
///   Memory: 16 bytes per range;
/// - "percentile", "entropy", "mse", "octav": a histogram whose range grows from the first batch on, read by
///   this method; "histogram" means percentile. See HistogramCalibrator (calib/histogram.h);
/// - "one_pass" (percentile), "one_pass_entropy", "one_pass_mse", "one_pass_octav": a histogram with bin
///   widths of powers of two, which are merged as the range grows. The result does not depend on the split
///   into batches or on their order, and calibrators merge;
/// - "two_pass" and the same with "_entropy", "_mse", "_octav": the first pass finds the largest magnitude,
///   the second counts in even bins from 0 to it. This is the finest histogram with that number of bins, for
///   twice the time;
/// - "mse_search": the multiple of the first batch's largest |x|, from start_multiplier to stop_multiplier,
///   with the smallest sum of squared errors of fake quantization over all batches (ModelOpt's
///   MseCalibrator);
/// - "scale_sweep": for one tensor in blocks with E4M3 scales (NVFP4), the best of the 126 positive E4M3
///   scales for each block (ModelOpt's FP8 scale sweep).
///
/// With kept axes there is one histogram for each index: 12 bytes per bin, at first at most 2^24 bins in all.
/// "octav" skips zeros. Throws ArgumentError for an unknown method, with the nearest name, and for an option
/// out of range.
[[nodiscard]] std::unique_ptr<Calibrator> make_calibrator(std::string_view method,
                                                          const CalibratorOptions& options = {});

/// Calibration of the quantizers with a path that matches the pattern (`*` is any run of characters, `?`
/// one). If several rules match a quantizer, the last one applies. CalibrateOptions and QuantConfig have
/// lists of rules.
struct CalibrationRule {
  std::string pattern;
  std::string method = {};  ///< a calib_method; empty: the descriptor's method
  AmaxOptions amax = {};
};

/// Adjustment of ranges after calibration: amax = min(max(amax * multiply, minimum), maximum), then
/// raised to a power of two. `postprocess_amax` applies one.
struct AmaxAdjustment {
  std::string pattern;
  double multiply = 1;                 ///< more than 0
  std::optional<double> minimum = {};  ///< at least 0
  std::optional<double> maximum = {};  ///< at least the minimum
  bool pow2 = false;                   ///< 0 stays 0
};

/// Calibrators of the largest magnitude: of all batches ("max" in make_calibrator), or its moving average
/// ("moving_average").
///
///     MaxCalibrator channels(0);  // one amax for each output channel of a weight
///     channels.collect(weight);
///     const Tensor amax = channels.compute_amax();  // [64, 1, 1, 1] for weights [64, 32, 3, 3]

/// amax = the largest |x| of all batches, per tensor or for each index of the kept axes (ModelOpt's
/// MaxCalibrator). Nothing is clipped, and one outlier widens every step. Merges exactly. Memory: 4 bytes per
/// range.
class MaxCalibrator final : public Calibrator {
 public:
  /// `axis` lists the kept axes; empty: per tensor.
  explicit MaxCalibrator(Axes axis = {}) : axis_(std::move(axis)) {}

  [[nodiscard]] std::string_view method() const noexcept override { return "max"; }

 protected:
  void do_collect(const Tensor& x, float largest) override;
  void do_merge(const Calibrator& other) override;
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override { amax_ = {}; }
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  void raise(const Tensor& amax);

  Axes axis_;
  Tensor amax_;
};

/// amax moves towards the largest |x| of each batch: a = a + c * (amax(batch) - a), c = 1 - momentum, each
/// operation rounded to f32; the first batch sets it (PyTorch's MovingAverageMinMaxObserver, on magnitudes).
/// Per tensor or for each index of the kept axes. The result depends on the order of batches, so these
/// calibrators do not merge.
class MovingAverageCalibrator final : public Calibrator {
 public:
  /// Throws ArgumentError unless 0 <= momentum < 1.
  explicit MovingAverageCalibrator(Axes axis = {}, double momentum = 0.99);

  [[nodiscard]] std::string_view method() const noexcept override { return "moving_average"; }

 protected:
  void do_collect(const Tensor& x, float largest) override;
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override { amax_ = {}; }
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  Axes axis_;
  float constant_;
  Tensor amax_;
};

/// BiasCalibrator: chooses the value that an affine quantizer subtracts before rounding and adds after it.
///
///     BiasCalibrator calibrator(BiasMethod::max_min, 0);  // one for each index of axis 0
///     for (const Tensor& batch : batches) calibrator.collect(batch);
///     const Tensor y = modelopt::fake_tensor_quant(x, amax, calibrator.compute_bias());
///
/// Only functions of reference/ use a bias. Quantizers of layers are symmetric or unsigned.

class StateDict;

/// Methods of choosing the bias.
///
/// - `mean`: the mean of all values of all batches, in double (ModelOpt averages the means of batches, which
///   is the same for batches of one size).
/// - `max_min`: fl(fl(largest + smallest) / 2).
enum class BiasMethod : unsigned char { mean, max_min };

/// The bias of fake_tensor_quant, per tensor or for each index of the kept axes (ModelOpt's BiasCalibrator,
/// whose `axis` lists the reduced axes). Memory: 16 bytes per range. Not thread-safe. After an error it is
/// unchanged.
class BiasCalibrator {
 public:
  /// `axis` lists the kept axes; empty: one bias. The first batch checks the axes.
  explicit BiasCalibrator(BiasMethod method = BiasMethod::mean, Axes axis = {})
      : method_(method), axis_(std::move(axis)) {}

  /// Collects a batch: f32, f16, bf16, or f64 rounded to f32, in any layout and on any device. Empty and
  /// `meta` tensors change nothing. Throws NumericError for NaN and Inf. Throws ArgumentError for other
  /// dtypes, and if the shape of the ranges differs from earlier batches.
  void collect(const Tensor& x);
  /// Returns the bias on the CPU, in the dtype of the first batch (f32 for f64). It has size 1 along all axes
  /// that are not kept; a single element has rank 0. Throws ArgumentError before the first batch.
  [[nodiscard]] Tensor compute_bias() const;
  /// Discards all batches.
  void reset();
  /// Whether no batch was collected.
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

  /// Returns the collected data. Empty before the first batch.
  [[nodiscard]] StateDict state_dict() const;
  /// Restores a state of `state_dict`. Throws ArgumentError for the state of another method and for a damaged
  /// state.
  void load_state(const StateDict& state);

 private:
  BiasMethod method_;
  Axes axis_;
  Shape shape_;
  DType dtype_ = DType::f32;
  std::int64_t count_ = 0;              // elements a range
  std::vector<double> first_, second_;  // sums; or largest and smallest
};

}  // namespace fq
