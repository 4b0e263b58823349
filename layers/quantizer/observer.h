#pragma once

/// RangeObserver: collects the inputs of a quantizer and computes a range from them.
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

/// Range that calibration found for a quantizer.
struct CalibratedRange {
  Tensor amax;
  bool is_unsigned = false;  ///< whether codes on this range are unsigned
};

/// Passes the inputs of a quantizer to a calibrator. The descriptor's calib_method makes the calibrator, or a
/// user sets one. The observer belongs to its quantizer. Only one thread may use it at a time.
class RangeObserver {
 public:
  /// `params` belong to the owning quantizer, and must outlive the observer.
  explicit RangeObserver(const QuantParams& params) : params_(params) {}

  /// Returns the calibrator. The descriptor's calib_method makes one unless a calibrator is set.
  [[nodiscard]] Calibrator& calibrator();
  /// Sets a user's calibrator, or one with options that the descriptor does not have. It stays until the
  /// descriptor changes. Checkpoints store its state if its method is the descriptor's calib_method. It must
  /// not be null.
  void set_calibrator(std::unique_ptr<Calibrator> calibrator);
  /// Sets a function that `observe` calls instead of the calibrator. An empty function restores the
  /// calibrator.
  void set_watcher(std::function<void(const Variable&)> watcher) { watcher_ = std::move(watcher); }

  /// Passes an input to the watcher, or to the calibrator as floats.
  void observe(const Variable& x);
  /// Adds a tensor to the calibrator. Throws NumericError naming the quantizer for NaN and infinity.
  void collect(const Tensor& x);
  /// Returns the smallest collected value; nothing before the first.
  [[nodiscard]] std::optional<float> minimum() const;
  /// Returns the range of the collected data. Bits and sign come from the descriptor, not from `options`.
  /// Throws ArgumentError naming the quantizer if no data was collected.
  [[nodiscard]] CalibratedRange range(AmaxOptions options = {}) const;
  /// Drops the calibrator and its data.
  void reset() { calibrator_.reset(); }

  /// Writes the collected data under the prefix. Writes nothing if the calibrator's method is not the
  /// descriptor's calib_method.
  void save(StateDict& state, const std::string& prefix) const;
  /// Restores the data that `save` wrote. A state without it drops the collected data. Throws ArgumentError
  /// naming the quantizer for data of another method and for damaged data; then no data is collected.
  void load(const StateDict& state, const std::string& prefix);
  /// Adds the collected data of such a state (Calibrator::merge). Throws as `load`, and if the data cannot be
  /// merged; then nothing changes.
  void merge(const StateDict& state, const std::string& prefix);

 private:
  void make_own(const Axes& axes);
  [[nodiscard]] std::unique_ptr<Calibrator> saved(const StateDict& state, const std::string& prefix,
                                                  CalibratorOptions& options) const;

  const QuantParams& params_;
  std::unique_ptr<Calibrator> calibrator_;
  std::optional<CalibratorOptions> own_options_;  // undefined for a user's calibrator
  std::function<void(const Variable&)> watcher_;
};

}  // namespace fq
