#pragma once

/// A calibration report as one HTML file that loads no other file.
///
///     CalibrationPage page{.title = "cnn", .quantizers = calibration_report(model)};
///     page.facts.push_back({"images", "512"});
///     save_calibration_html("calibration.html", page);
///
/// `fakequant inspect --calibration --html` writes this page.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/sensitivity/auto_quantize.h"

namespace fq {

/// Content of the page. Holds plain values and no reference to a model.
struct CalibrationPage {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts = {};  ///< for example {"model", "resnet20"}
  /// Result of calibration_report.
  std::vector<QuantizerReport> quantizers;
  /// Plan of auto_quantize, if one exists.
  std::optional<QuantizationPlan> plan = {};
};

/// Returns the text of the page: a sortable table of all quantizers, the sensitivity plan, and a histogram of
/// each quantizer with the amax of every method.
///
/// Styles, script and drawings are part of the text. The page loads no other file, and its
/// Content-Security-Policy forbids it. Its colours follow the light or dark setting of the system. Names may
/// contain any text.
[[nodiscard]] std::string calibration_html(const CalibrationPage& page);

/// Writes the page atomically: the whole file or nothing. Throws FileError and SystemError.
void save_calibration_html(const std::string& path, const CalibrationPage& page);

}  // namespace fq
