#pragma once

/// Reports on quantizers: observed ranges and their errors, the ranges of each method, and defects.
///
///     for (const QuantizerReport& seen : calibration_report(model, loader, 512))
///       for (const RangeReport& range : seen.methods)
///         std::cout << seen.name << ' ' << range.method << ' ' << range.sqnr_db.value_or(0) << " dB\n";
///     for (const auto& finding : quantizer_findings(model, batch.x)) std::cout << finding.text() << '\n';
///
/// report/calibration_page.h writes the report as an HTML page.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/variable.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {

/// A range and its quantization error. Unknown numbers are empty, and `reason` says why.
struct RangeReport {
  std::string method;                               ///< a calib_method; "learned" for a trained range
  std::optional<double> lowest = {}, highest = {};  ///< smallest and largest amax of the channels or blocks
  std::optional<double> clipped = {};               ///< share of the values beyond the range, 0 to 1
  std::optional<double> sqnr_db = {};               ///< QuantizationError::sqnr_db, infinite without an error
  std::string reason = {};
};

/// Observed values of one quantizer, its range, and the ranges of other methods.
struct QuantizerReport {
  /// Path of the quantizer, and its other paths.
  std::string name;
  std::vector<std::string> aliases = {};
  bool is_weight = false;
  std::string format = {};                           ///< "int8 narrow"
  std::string granularity = {};                      ///< "per tensor", "axis 0", "blocks of {-1: 32}"
  std::int64_t count = 0;                            ///< number of values in the histogram
  std::optional<double> minimum = {}, largest = {};  ///< smallest value, and largest magnitude
  /// Range of the quantizer, or the range that its method would choose.
  RangeReport in_force = {};
  bool is_chosen = false;                 ///< whether `in_force` is the range of the quantizer
  std::vector<RangeReport> methods = {};  ///< ranges of report_methods(), in that order
  Histogram histogram = {};  ///< histogram of magnitudes of the whole tensor; empty if there is none
};

/// Returns the methods that a report compares: max, percentile, entropy, mse, octav.
[[nodiscard]] const std::vector<std::string>& report_methods();

/// Returns a report of each enabled quantizer, in the order of the module tree. Activations are reported from
/// the histograms of their calibrators, weights from the weights.
///
/// Numbers from a histogram are approximate. `largest` and the amax of `max` are the upper edge of its last
/// bin, in one-pass histograms the largest magnitude itself. Values are assumed to be uniform in each bin,
/// half of them negative up to the magnitude of the smallest value. The first bin is assumed to have at most
/// the count of the second bin; the rest of its values are counted as zeros, which octav ignores. SQNR is
/// then within 0.1 dB of the true value, up to 12 bits, except for data with few distinct values (8-bit
/// pixels) or with another distribution near 0. The error of values below 0 in an unsigned format is unknown.
///
/// `options` are options of the methods; bits and sign come from each quantizer. Throws ArgumentError for a
/// model without quantizers or with packed weights, and for a percentile outside 0 to 100.
[[nodiscard]] std::vector<QuantizerReport> calibration_report(Module& model, const AmaxOptions& options = {});

/// Reports on histograms of up to `samples` samples of `data` (0: one epoch). Collects them in one pass, for
/// any calib_method. The model does not change. `ranks` share the batches as in `calibrate`. Also throws as
/// `calibrate` does.
[[nodiscard]] std::vector<QuantizerReport> calibration_report(Module& model, DataLoader& data,
                                                              std::int64_t samples = 0,
                                                              const AmaxOptions& options = {},
                                                              std::shared_ptr<Communicator> ranks = {});

/// Reports on the activations of a calibration state (calibrate.h), without a model. Uses the bits and the
/// sign of the state. `path` is for messages. Throws FileError for a state that is empty or damaged.
[[nodiscard]] std::vector<QuantizerReport> calibration_report(const StateDict& state, const std::string& path,
                                                              const AmaxOptions& options = {});

/// Quantization error of one tensor, measured by quantizing the values, not from a histogram.
struct QuantizationError {
  std::string name;           ///< name of the quantizer
  std::int64_t elements = 0;  ///< number of measured values
  double mse = 0;             ///< mean of (quantized - x)^2
  double signal = 0;          ///< mean of x^2

  /// Returns the ratio of signal to quantization noise in decibels, 10 log10(signal / mse): infinite without
  /// an error, 0 for a tensor of zeros.
  [[nodiscard]] double sqnr_db() const;
};

/// Measures the quantizers with a path that matches `pattern`, in the order of the module tree. Makes one
/// pass in evaluation mode over the first `samples` samples of `data` (0: one epoch). As in calibration,
/// nothing is quantized in the pass: each enabled quantizer is measured on float tensors, and a tensor counts
/// once. Weights are measured once. Sums are in double and do not depend on the number of threads. Throws
/// ArgumentError for a quantizer without a range, for a pattern that matches nothing, and as `calibrate`
/// does.
[[nodiscard]] std::vector<QuantizationError> compute_quantization_mse(Module& model, DataLoader& data,
                                                                      std::int64_t samples = 0,
                                                                      std::string_view pattern = "*");

class Module;

/// One defect of one quantizer.
struct QuantizerFinding {
  /// - `collapsed`: all values get one code though they differ, or more than 99 % of the values other than 0
  ///   get code 0;
  /// - `zeros`: its range is zero, so that it passes floats (layers/quantizer/range.h);
  /// - `constant`: all inputs are one number, so that no information passes;
  /// - `dead_channels`: some output channels of a weight have only code 0, though their largest weight is
  ///   above a thousandth of the largest of all (channels that a batch norm silenced do not count);
  /// - `clipped`: more than half of the values are beyond the range. Does not apply to 2-bit formats, whose
  ///   best ranges clip that much.
  enum class Kind : unsigned char { collapsed, zeros, constant, dead_channels, clipped };

  std::string quantizer;  ///< name of the quantizer
  Kind kind = Kind::collapsed;
  bool of_weight = false;
  /// Number of dead channels, clipped values, values with the one code, or values lost to code 0.
  std::int64_t count = 0;
  /// Number of channels or values that `count` is a part of; for values lost, values other than 0.
  std::int64_t of = 0;
  double amax = 0;     ///< its largest range
  double largest = 0;  ///< largest input magnitude

  /// Returns a text, for example "fc.weight_quantizer: 3 of 10 channels have no code but 0".
  [[nodiscard]] std::string text() const;
};

/// Returns the defects of static quantizers that are on, at most one per quantizer, weights first. Checks
/// weight quantizers on the weights, and other quantizers on their inputs when the model runs on `x` in
/// evaluation mode. Undefined `x` checks weights only. Skips sequences of quantizers, weights stored as codes
/// (compress.h), arithmetic `reference`, and ranges that come from each input. The model must have its ranges
/// and does not change. `x` is on its device.
[[nodiscard]] std::vector<QuantizerFinding> quantizer_findings(Module& model, const Tensor& x = {});

}  // namespace fq
