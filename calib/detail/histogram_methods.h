#pragma once

/// The ways to read amax from a histogram, by name.

#include <span>
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

struct HistogramReading {
  std::string_view name;
  std::string_view alias;  ///< another name for it, or empty
  float (*amax)(const Histogram& histogram, const AmaxOptions& options);
  bool skips_zeros = false;  ///< zeros do not belong in its histogram
};

/// All readings, in the order of messages and reports.
[[nodiscard]] std::span<const HistogramReading> histogram_readings() noexcept;
/// By name or alias; null when there is none.
[[nodiscard]] const HistogramReading* find_histogram_reading(std::string_view name) noexcept;
/// Throws ArgumentError when there is none.
void check_histogram_method(std::string_view method);
/// Reads the histogram by `method`, which replaces the one in `options`. Throws ArgumentError for unknown
/// methods.
[[nodiscard]] float histogram_amax(const Histogram& histogram, std::string_view method,
                                   const AmaxOptions& options);

}  // namespace fq::detail

// Histograms in the states of calibrators.

namespace fq {
class StateDict;
}

namespace fq::detail {

/// `counts` i64, `edges` f32, or f64 where it has wide ones, `zeros` i64.
void save_histogram(const Histogram& histogram, StateDict& state);
/// Loads the state of save_histogram. Throws ArgumentError, opened by `where`, when a tensor is missing or of
/// another shape or type, for negative counts, edges that do not rise or, if `from_zero`, do not begin at 0,
/// and more than max_bins bins.
[[nodiscard]] Histogram load_histogram(const StateDict& state, bool from_zero, const char* where);

}  // namespace fq::detail
