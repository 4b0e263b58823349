#pragma once

/// Histograms as SVG elements to stand in a page.

#include <string>

#include "fakequant/train/calibration/calibration_report.h"

namespace fq::html {

/// A figure: counts on a logarithmic scale over magnitudes, what lies beyond the range in force in another
/// colour, and below a row for the range in force and each method, with a mark at its amax (a bar from the
/// lowest to the highest where there are several). Colours are those of the classes m-<method> of the page.
[[nodiscard]] std::string histogram_svg(const QuantizerReport& quantizer);

/// The outline alone, with the range in force, to stand in a line of a table.
[[nodiscard]] std::string histogram_thumbnail(const QuantizerReport& quantizer);

}  // namespace fq::html
