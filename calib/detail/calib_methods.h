#pragma once

/// The calibrators behind the names of core/detail/calib_methods.def, and what others ask about a method.

#include <memory>
#include <string_view>

#include "fakequant/calib/calibrator.h"

namespace fq::detail {

struct CalibMethod {
  std::string_view name;
  std::string_view kind;     ///< of calibrator: "one_pass" of "one_pass_mse"; the name where it is its own
  std::string_view reading;  ///< of its histogram: "mse" of "one_pass_mse"; empty: it keeps none
  bool tries_codes;          ///< what it collects depends on the format that it chooses for
  std::unique_ptr<Calibrator> (*make)(std::string_view method, const CalibratorOptions& options);
};

/// Null when there is none.
[[nodiscard]] const CalibMethod* find_calib_method(std::string_view name) noexcept;
/// Whether what several collect on shares of the data is, merged, bit by bit what one collects on all of it.
[[nodiscard]] bool merges_exactly(const CalibMethod& method) noexcept;
/// Empty too when there is no such method.
[[nodiscard]] std::string_view reading_of(std::string_view method) noexcept;
/// Whether it reads a histogram that zeros do not belong in.
[[nodiscard]] bool skips_zeros(std::string_view method) noexcept;
/// Throws ArgumentError, opened by `where`, listing the methods of the kind, unless `method` is one of them.
void check_kind(std::string_view kind, std::string_view method, const char* where);

#define FQ_CALIB_METHOD(name) \
  [[nodiscard]] std::unique_ptr<Calibrator> make_##name(const CalibratorOptions& options);
#define FQ_HISTOGRAM_METHOD(name, kind, reading)                                 \
  [[nodiscard]] std::unique_ptr<Calibrator> make_##kind(std::string_view method, \
                                                        const CalibratorOptions& options);
#include "fakequant/core/detail/calib_methods.def"

}  // namespace fq::detail
