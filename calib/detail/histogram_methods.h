#pragma once

/// The ways to read amax from a histogram, by name.

#include <string_view>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"

namespace fq::detail {

/// Throws ArgumentError unless a histogram that is not empty has one edge more than counts, and counts whose
/// sum is a count.
[[nodiscard]] bool is_empty(const Histogram& histogram, const char* where);
/// Throws ArgumentError unless stride is positive and start_bin from `lowest` to `highest`.
void check_search(const char* where, std::size_t bins, int stride, int start_bin, int lowest,
                  std::size_t highest);

/// Throws ArgumentError unless it is "percentile", "histogram" (the same), "entropy", "mse" or "octav".
void check_histogram_method(std::string_view method);

/// How the method of a calibrator named `kind` reads its histogram: "percentile" for "one_pass" of kind
/// "one_pass", "mse" for "one_pass_mse"; empty when it is no such method.
[[nodiscard]] std::string_view histogram_reading(std::string_view method, std::string_view kind) noexcept;

/// By such a method, which replaces the one in `options`.
[[nodiscard]] float amax_of(const Histogram& histogram, std::string_view method, const AmaxOptions& options);

}  // namespace fq::detail
