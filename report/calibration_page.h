#pragma once

/// A calibration as a page to look at: one HTML file that needs nothing else.
///
///     CalibrationPage page{.title = "cnn", .quantizers = calibration_report(model)};
///     page.facts.push_back({"images", "512"});
///     save_calibration_html("calibration.html", page);
///
/// `fakequant inspect --calibration --html` writes one.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/sensitivity/auto_quantize.h"

namespace fq {

/// What is on the page: plain values, which refer to no model.
struct CalibrationPage {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts = {};  ///< such as "model", "resnet20"
  /// What calibration_report gives.
  std::vector<QuantizerReport> quantizers;
  /// The plan of auto_quantize, where there is one.
  std::optional<QuantizationPlan> plan = {};
};

/// The text of the page: a table of all quantizers, whose columns sort, a plan that sensitivities were made
/// into, and a histogram of each quantizer with every method's amax.
///
/// Styles, script and drawings are in the text; it refers to nothing outside and forbids a browser to load
/// anything (Content-Security-Policy). It is light or dark as the reader's system is. Any text may stand in
/// names.
[[nodiscard]] std::string calibration_html(const CalibrationPage& page);

/// Writes the page, as a whole or not at all. Throws FileError, SystemError.
void save_calibration_html(const std::string& path, const CalibrationPage& page);

}  // namespace fq
