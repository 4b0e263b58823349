#pragma once

/// Reports on quantizers: observed ranges and their errors, the ranges of each method, and faults.
///
///     for (const QuantizerReport& seen : calibration_report(model, loader, 512))
///       for (const RangeReport& range : seen.methods)
///         std::cout << seen.name << ' ' << range.method << ' ' << range.sqnr_db.value_or(0) << " dB\n";
///     for (const auto& finding : quantizer_findings(model, batch.x)) std::cout << finding.text() << '\n';
///
/// report/calibration_page.h makes a page of the report.

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

/// A range, and what it costs. Numbers that are not known are left out and `reason` says why.
struct RangeReport {
  std::string method;                               ///< a calib_method; "learned" for a trained range
  std::optional<double> lowest = {}, highest = {};  ///< amax; of the channels or blocks, equal for one range
  std::optional<double> clipped = {};               ///< share of the values beyond the range, 0 .. 1
  std::optional<double> sqnr_db = {};               ///< QuantizationError::sqnr_db, infinite without an error
  std::string reason = {};
};

/// What one quantizer saw, and the ranges that it has or could have.
struct QuantizerReport {
  /// The path of the quantizer, and the other paths that share it.
  std::string name;
  std::vector<std::string> aliases = {};
  bool is_weight = false;
  std::string format = {};                           ///< "int8 narrow"
  std::string granularity = {};                      ///< "per tensor", "axis 0", "blocks of {-1: 32}"
  std::int64_t count = 0;                            ///< values in the histogram
  std::optional<double> minimum = {}, largest = {};  ///< with its sign, and the largest magnitude
  RangeReport in_force = {};                         ///< the range it has, or the one its method would choose
  bool is_chosen = false;                            ///< whether it has that range
  std::vector<RangeReport> methods = {};             ///< those of report_methods(), in that order
  Histogram histogram = {};  ///< of magnitudes, of the whole tensor; empty where there is none
};

/// The methods that are compared: max, percentile, entropy, mse, octav.
[[nodiscard]] const std::vector<std::string>& report_methods();

/// A report of each enabled quantizer, in the order of the module tree: activations by the histograms that
/// their calibrators hold, weights by the weights themselves.
///
/// What is read from a histogram: `largest` and the amax of `max` are the upper edge of its last bin, of
/// one-pass histograms the largest magnitude itself. Values are spread evenly in each bin, half of them
/// negative as far as the smallest value goes; of the first bin so many as its neighbour has, the others are
/// zeros (octav leaves these out). So SQNR is within 0.1 dB of that of the values, up to 12 bits, unless
/// these are few that repeat (pixels of 8 bits) or lie otherwise about 0. What an unsigned format makes of
/// values below 0 is not known.
///
/// `options` are those of the methods; bits and sign come from each quantizer. Throws ArgumentError for a
/// model without quantizers, one with packed weights, a percentile outside 0 .. 100.
[[nodiscard]] std::vector<QuantizerReport> calibration_report(Module& model, const AmaxOptions& options = {});

/// The same from histograms of up to `samples` samples of `data` (0: all of an epoch), collected in one pass
/// whatever the calib_methods are. The model stays as it was. `ranks` share it out as they do a calibration.
/// Throws as `calibrate` too.
[[nodiscard]] std::vector<QuantizerReport> calibration_report(Module& model, DataLoader& data,
                                                              std::int64_t samples = 0,
                                                              const AmaxOptions& options = {},
                                                              std::shared_ptr<Communicator> ranks = {});

/// The reports of a calibration state (calibration_state.h) alone, without a model: activations, by the bits
/// and the sign that the state was collected with. `path` is for messages. Throws FileError for a state that
/// holds nothing or is damaged.
[[nodiscard]] std::vector<QuantizerReport> calibration_report(const StateDict& state, const std::string& path,
                                                              const AmaxOptions& options = {});

/// What quantization costs one tensor, measured on data. Unlike a report it quantizes the values themselves.
struct QuantizationError {
  std::string name;           ///< of the quantizer
  std::int64_t elements = 0;  ///< measured
  double mse = 0;             ///< mean of (quantized - x)^2
  double signal = 0;          ///< mean of x^2

  /// The ratio of signal to quantization noise in decibels, 10 log10(signal / mse): infinite without an
  /// error, 0 for a tensor of zeros.
  [[nodiscard]] double sqnr_db() const;
};

/// One pass in evaluation mode over the first `samples` samples of `data` (0: all of an epoch). As in
/// calibration nothing quantizes, so that each enabled quantizer is measured on the float tensors alone, and
/// a tensor counts once; weights are measured as they are. Only quantizers that a path of matches `pattern`,
/// in the order of the module tree. Sums are in double and do not depend on the number of threads. Throws
/// ArgumentError naming a quantizer without a range, for a pattern that matches none, and as `calibrate`.
[[nodiscard]] std::vector<QuantizationError> compute_quantization_mse(Module& model, DataLoader& data,
                                                                      std::int64_t samples = 0,
                                                                      std::string_view pattern = "*");

class Module;

/// One fault of one quantizer.
struct QuantizerFinding {
  /// - `collapsed`: every value gets the same code though values differ, or more than 99 % of those that
  ///   are not 0 get code 0;
  /// - `zeros`: its range is zero, so that it passes floats (layers/quantizer/range.h);
  /// - `constant`: the input is the same number everywhere, so that nothing passes what comes after;
  /// - `dead_channels`: all codes of some output channels of a weight are 0, though the channel has weights
  ///   above a thousandth of the largest one (what a batch norm silenced does not count);
  /// - `clipped`: more than half of the values lie beyond the range. Formats of 2 bits do not count: their
  ///   best ranges clip as many.
  enum class Kind : unsigned char { collapsed, zeros, constant, dead_channels, clipped };

  std::string quantizer;  ///< its name
  Kind kind = Kind::collapsed;
  bool of_weight = false;
  std::int64_t count = 0;  ///< dead channels, clipped values, or those of the one code
  std::int64_t of = 0;     ///< channels, or values; those that are not 0 where they become 0
  double amax = 0;         ///< its largest range
  double largest = 0;      ///< largest magnitude it was given

  /// "fc.weight_quantizer: 3 of 10 channels have no code but 0".
  [[nodiscard]] std::string text() const;
};

/// The faults of the static quantizers that are on: of those of weights by the weights, of the others by what
/// they are given when the model runs on `x` in evaluation mode; undefined `x` leaves those out. Weights
/// first, at most one fault each. Quantizers in sequence, weights that are kept as codes (compress.h),
/// arithmetic `reference` and ranges that come from each input are passed over. The model stays as it was;
/// its ranges must be known, and `x` is on its device.
[[nodiscard]] std::vector<QuantizerFinding> quantizer_findings(Module& model, const Tensor& x = {});

}  // namespace fq
