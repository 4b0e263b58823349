#pragma once

/// Calibrator: watches tensors and chooses amax, the largest magnitude that a quantizer represents.
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
  /// How a histogram is read, "percentile", "entropy", "mse" or "octav"; empty for the calibrator's own way.
  std::string method = {};
  /// Percentage of values that are at most amax, 0 to 100. A smaller value clips more and makes steps finer.
  double percentile = 99.99;
  /// The codes that the range is chosen for (entropy, mse, octav, lsq).
  NumBits num_bits = 8;
  bool is_unsigned = false;  ///< whether those codes are 0 and above
  /// Bins between candidates of entropy and mse: more is quicker and coarser.
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

/// How a calibrator is built; a method reads the options that it has a use for.
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
  bool is_unsigned = false;   ///< whether those codes are 0 and above
  bool narrow_range = false;  ///< whether they leave out the lowest signed one
  /// Candidates of mse_search: multiples of the first batch's largest |x|, from start_multiplier to
  /// stop_multiplier, evenly spaced, in steps of at most multiplier_step.
  double start_multiplier = 0.25;
  double stop_multiplier = 4.0;  ///< .. up to this
  double multiplier_step = 0.1;  ///< .. in steps of at most this
};

/// Collects batch after batch, then answers; asking changes nothing, and more batches may follow. Results do
/// not depend on the number of threads. It is not for use by several threads at once. An error leaves it as
/// it was.
///
/// To write one's own, derive and override the protected functions; RangeObserver::set_calibrator takes it,
/// and a line in core/detail/calib_methods.def makes it a name (docs/developing.md).
class Calibrator {
 public:
  Calibrator() = default;
  virtual ~Calibrator() = default;
  Calibrator(const Calibrator&) = delete;  // a calibrator is owned by one quantizer
  Calibrator& operator=(const Calibrator&) = delete;

  /// Takes a batch into account: f32, f16, bf16, or f64 rounded to f32, in any layout and on any device.
  /// Empty and `meta` tensors change nothing. Throws NumericError for NaN and Inf, ArgumentError for other
  /// dtypes and when the kept axes have other sizes than before.
  void collect(const Tensor& x);
  /// amax, on the CPU, in the dtype of the first batch (f32 for f64). It has the rank of the batches, with
  /// the kept axes at their size and 1 for the others; rank 0 when that is one element. When every axis is
  /// kept, everything is reduced. Throws ArgumentError before the first batch, and for options that the
  /// method cannot use.
  [[nodiscard]] Tensor compute_amax(const AmaxOptions& options = {}) const;
  /// Takes over what `other` collected, as if its batches had been collected here. For "max" and the
  /// "one_pass" methods the result equals one run over all batches, bit by bit, for any split and
  /// order; for "lsq" it is up to rounding.
  ///
  /// Throws ArgumentError for calibrators of other methods, settings, shapes or dtypes, and for methods whose
  /// result depends on the order of batches; both then stay as they were.
  void merge(const Calibrator& other);
  /// Forgets every batch.
  void reset();

  /// How often it is to see all of the data before it answers: 2 where a first pass fixes the grid that a
  /// second one counts in, else 1.
  [[nodiscard]] virtual int passes() const noexcept { return 1; }
  /// Called between two passes; a calibrator of one pass has nothing to do.
  virtual void next_pass() {}

  /// All that was collected, to be saved: tensors of the method, attributes `method`, `minimum` and `dtype`.
  /// It is empty before a batch.
  [[nodiscard]] StateDict state_dict() const;
  /// Restores a state of `state_dict` and discards collected data. Results are then equal bit by bit.
  /// Throws ArgumentError for the state of another method and for a damaged one.
  void load_state(const StateDict& state);

  /// Whether there was no batch yet.
  [[nodiscard]] bool empty() const noexcept { return !minimum_.has_value(); }
  /// The smallest value seen, with its sign: where it is not negative an unsigned format loses nothing.
  [[nodiscard]] std::optional<float> minimum() const noexcept { return minimum_; }
  /// The name that `make_calibrator` takes.
  [[nodiscard]] virtual std::string_view method() const noexcept = 0;

 protected:
  /// Takes in `x`, which is f32, finite, not empty, and on the batch's device; `largest` is its largest
  /// magnitude. Kept data should be on the CPU.
  virtual void do_collect(const Tensor& x, float largest) = 0;
  /// Takes over what `other` has, which is of the same method, and of the same dtype unless one of the two is
  /// empty. Where it is not overridden merging is refused.
  virtual void do_merge(const Calibrator& other);
  /// amax in f32; called after the first batch only.
  [[nodiscard]] virtual Tensor do_compute(const AmaxOptions& options) const = 0;
  /// Forgetting, and saving and loading the tensors of the method.
  virtual void do_reset() = 0;
  virtual void do_save(StateDict& state) const = 0;
  virtual void do_load(const StateDict& state) = 0;

 private:
  std::optional<float> minimum_;
  DType dtype_ = DType::f32;
};

/// The calibrator of a name of QuantDescriptor::calib_methods():
///
/// - "max", "moving_average": see MaxCalibrator and MovingAverageCalibrator (calib/calibrator.h);
/// - "lsq": amax = bound * 2 * mean|x| / sqrt(bound), the scale that learning of a step begins with (Esser et
///   al., "Learned Step Size Quantization", ICLR 2020); bound is the largest code of AmaxOptions::num_bits
///   and is_unsigned, of integers only. The mean is of all values of all batches, in double; 16 bytes a
///   range;
/// - "percentile", "entropy", "mse", "octav": a histogram whose range grows from the first batch on, read by
///   that method; "histogram" means percentile. See HistogramCalibrator (calib/histogram.h);
/// - "one_pass" (percentile), "one_pass_entropy", "one_pass_mse", "one_pass_octav": a histogram whose bins
///   are powers of two wide and are joined as the range grows, so that neither the split into batches nor
///   their order matters and calibrators merge;
/// - "two_pass" and the same with "_entropy", "_mse", "_octav": the first pass finds the largest magnitude,
///   the second counts in even bins from 0 to it. This is the finest histogram with that number of bins, for
///   twice the time;
/// - "mse_search": the multiple of the first batch's largest |x|, from start_multiplier to stop_multiplier,
///   with the smallest sum of squared errors of fake quantization over all batches (ModelOpt's
///   MseCalibrator);
/// - "scale_sweep": for one tensor in blocks with scales of (4,3), as NVFP4 has them, the best of the 126
///   positive E4M3 scales of each block (ModelOpt's FP8 scale sweep).
///
/// With kept axes, histograms have one for each index: 12 bytes a bin, 2^24 bins together at first; "octav"
/// skips zeros. Throws ArgumentError for an unknown method, naming the nearest, and for an option out of
/// range.
[[nodiscard]] std::unique_ptr<Calibrator> make_calibrator(std::string_view method,
                                                          const CalibratorOptions& options = {});

/// Calibration of the quantizers with a path that matches the pattern (`*` is any run of characters, `?`
/// one). Where several rules cover one, the last counts. CalibrateOptions and QuantConfig have lists of them.
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

/// Calibrators that follow the largest magnitudes of batches: of all of them, or their moving average.
/// make_calibrator (calib/calibrator.h) makes them by the names "max" and "moving_average".
///
///     MaxCalibrator channels(0);  // an amax for each index of axis 0, as weights have
///     channels.collect(weight);
///     const Tensor amax = channels.compute_amax();  // [64, 1, 1, 1] for weights [64, 32, 3, 3]

/// amax = the largest |x| of all batches, per tensor or for each index of the kept axes (ModelOpt's
/// MaxCalibrator). Nothing is clipped, and one outlier widens every step. It merges exactly, and keeps 4
/// bytes a range.
class MaxCalibrator final : public Calibrator {
 public:
  /// `axis` are the kept axes; empty: per tensor.
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
/// It is per tensor or for each index of the kept axes. The result depends on the order of batches: it does
/// not merge.
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
/// Only functions of reference/ take a bias; quantizers of layers are symmetric or unsigned.

class StateDict;

/// Methods of choosing the bias.
///
/// - `mean`: the mean of all values of all batches, in double (ModelOpt averages the means of batches, which
///   is the same for batches of one size).
/// - `max_min`: fl(fl(largest + smallest) / 2).
enum class BiasMethod : unsigned char { mean, max_min };

/// The bias of fake_tensor_quant, per tensor or for each index of the kept axes (ModelOpt's BiasCalibrator,
/// whose `axis` names the axes that are reduced). It keeps 16 bytes a range. It is not for use by several
/// threads at once. After an error it is unchanged.
class BiasCalibrator {
 public:
  /// `axis` are the kept axes, none for one bias; they are checked by the first batch.
  explicit BiasCalibrator(BiasMethod method = BiasMethod::mean, Axes axis = {})
      : method_(method), axis_(std::move(axis)) {}

  /// Takes a batch into account: f32, f16, bf16, or f64 rounded to f32, in any layout and on any device.
  /// Empty and `meta` tensors change nothing. Throws NumericError for NaN and Inf, ArgumentError for other
  /// dtypes and when ranges have another shape than before.
  void collect(const Tensor& x);
  /// The bias, on the CPU, in the dtype of the first batch (f32 for f64): the kept axes with 1 for the
  /// others, of rank 0 when that is one element. Throws ArgumentError before the first batch.
  [[nodiscard]] Tensor compute_bias() const;
  /// Forgets every batch.
  void reset();
  /// Whether there was no batch yet.
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

  /// The collected data, to be saved; empty before a batch.
  [[nodiscard]] StateDict state_dict() const;
  /// Takes back what `state_dict` gave. Throws ArgumentError for the state of another method and for a
  /// damaged one.
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
