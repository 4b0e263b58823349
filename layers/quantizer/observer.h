#pragma once

/// RangeObserver: what a quantizer has seen, and which range follows from it.
///
///     quantizer.observer().set_calibrator(make_calibrator("entropy", {.num_bins = 4096}));
///     quantizer.observer().collect(x);
///     const CalibratedRange range = quantizer.observer().range();  // nothing is set yet

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "fakequant/calib/calibrator.h"
#include "fakequant/layers/quantizer/quant_params.h"

namespace fq {

class StateDict;

/// What calibration found for a quantizer.
struct CalibratedRange {
  Tensor amax;
  bool is_unsigned = false;  ///< of the codes that hold it
};

/// Shows the inputs of a quantizer to a calibrator: one made by the descriptor's calib_method, or a user's.
/// It belongs to its quantizer; for use by one thread at a time.
class RangeObserver {
 public:
  /// `params` belong to the quantizer, and outlive the observer.
  explicit RangeObserver(const QuantParams& params) : params_(params) {}

  /// The calibrator, which is made by the descriptor's calib_method until one is set.
  [[nodiscard]] Calibrator& calibrator();
  /// Sets one of a user's own, or one with options that the descriptor has not. It stays until the descriptor
  /// changes; checkpoints keep its state when its method is that of the descriptor. It must not be null.
  void set_calibrator(std::unique_ptr<Calibrator> calibrator);
  /// What `observing` shows inputs to in place of the calibrator; an empty one gives them to the calibrator
  /// again.
  void set_watcher(std::function<void(const Variable&)> watcher) { watcher_ = std::move(watcher); }

  /// Shows an input to the watcher, or to the calibrator; sums and codes are shown as floats.
  void observe(const Variable& x);
  /// Shows the calibrator a tensor. Throws NumericError naming the quantizer for NaN and infinity.
  void collect(const Tensor& x);
  /// The smallest value collected; nothing before.
  [[nodiscard]] std::optional<float> minimum() const;
  /// The range of what was collected; bits and sign of `options` are those of the descriptor. Throws
  /// ArgumentError naming the quantizer when nothing was.
  [[nodiscard]] CalibratedRange range(AmaxOptions options = {}) const;
  /// Forgets what was collected, and by what.
  void reset() { calibrator_.reset(); }

  /// Puts what was collected under the prefix; nothing when the calibrator's method is not that of the
  /// descriptor.
  void save(StateDict& state, const std::string& prefix) const;
  /// Takes back what `save` put; a state without it forgets what was collected. Throws ArgumentError naming
  /// the quantizer for one of another method and for a damaged one; then nothing is collected.
  void load(const StateDict& state, const std::string& prefix);
  /// Adds what such a state has collected (Calibrator::merge). Throws likewise, and where it cannot be added;
  /// then nothing changed.
  void merge(const StateDict& state, const std::string& prefix);

 private:
  void make_own(const Axes& axes);
  [[nodiscard]] std::unique_ptr<Calibrator> saved(const StateDict& state, const std::string& prefix,
                                                  CalibratorOptions& options) const;

  const QuantParams& params_;
  std::unique_ptr<Calibrator> calibrator_;
  std::optional<CalibratorOptions> own_options_;  // of one that was made here
  std::function<void(const Variable&)> watcher_;
};

}  // namespace fq
