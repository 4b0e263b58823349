#pragma once

/// Table of readings: methods that compute amax from a histogram.

#include <span>
#include <string_view>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"

namespace fq::detail {

/// Returns whether the histogram has no counts. Throws ArgumentError for negative counts, for a sum above
/// 2^62, and if there is not one edge more than counts.
[[nodiscard]] bool is_empty(const Histogram& histogram, const char* where);
/// Throws ArgumentError unless stride is positive and start_bin is `lowest` to `highest`.
void check_search(const char* where, std::size_t bins, int stride, int start_bin, int lowest,
                  std::size_t highest);

struct HistogramReading {
  std::string_view name;
  std::string_view alias;  ///< second name, or empty
  float (*amax)(const Histogram& histogram, const AmaxOptions& options);
  bool skips_zeros = false;  ///< whether it requires a histogram without zeros
};

/// All readings, in the order of messages and reports.
[[nodiscard]] std::span<const HistogramReading> histogram_readings() noexcept;
/// Returns the reading with this name or alias, or null.
[[nodiscard]] const HistogramReading* find_histogram_reading(std::string_view name) noexcept;
/// Throws ArgumentError if there is no such reading.
void check_histogram_method(std::string_view method);
/// Reads the histogram by `method`, which replaces the one in `options`. Throws ArgumentError for unknown
/// methods.
[[nodiscard]] float histogram_amax(const Histogram& histogram, std::string_view method,
                                   const AmaxOptions& options);

}  // namespace fq::detail

// Saving and loading of histograms.

namespace fq {
class StateDict;
}

namespace fq::detail {

/// Saves `counts` i64, `edges` f32 (or f64 for wide edges) and `zeros` i64.
void save_histogram(const Histogram& histogram, StateDict& state);
/// Loads the state of save_histogram. Throws ArgumentError that begins with `where` for a missing tensor, for
/// other shapes or types, negative counts, more than max_bins bins, and for edges that do not rise or, with
/// `from_zero`, do not begin at 0.
[[nodiscard]] Histogram load_histogram(const StateDict& state, bool from_zero, const char* where);

}  // namespace fq::detail
