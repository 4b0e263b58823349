#pragma once

/// The calibrators of the names in core/detail/calib_methods.def, and properties of the methods.

#include <memory>
#include <string_view>

#include "fakequant/calib/calibrator.h"

namespace fq::detail {

struct CalibMethod {
  std::string_view name;
  std::string_view kind;     ///< of calibrator: "one_pass" of "one_pass_mse"; the name where it is its own
  std::string_view reading;  ///< of its histogram: "mse" of "one_pass_mse"; empty: it keeps none
  bool tries_codes;          ///< whether the collected data depends on the target format
  std::unique_ptr<Calibrator> (*make)(std::string_view method, const CalibratorOptions& options);
};

/// Null when there is none.
[[nodiscard]] const CalibMethod* find_calib_method(std::string_view name) noexcept;
/// Whether merging collectors on parts of the data gives, bit by bit, the result of one collector on all
/// data.
[[nodiscard]] bool merges_exactly(const CalibMethod& method) noexcept;
/// Empty too when there is no such method.
[[nodiscard]] std::string_view histogram_reading(std::string_view method) noexcept;
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
