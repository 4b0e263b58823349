#pragma once

/// Table of the methods in core/detail/calib_methods.def: factory functions and properties.

#include <memory>
#include <string_view>

#include "fakequant/calib/calibrator.h"

namespace fq::detail {

struct CalibMethod {
  std::string_view name;
  std::string_view kind;     ///< kind of calibrator: "one_pass" for "one_pass_mse"; else the name
  std::string_view reading;  ///< reading of the histogram: "mse" for "one_pass_mse"; empty: no histogram
  bool tries_codes;          ///< whether the collected data depends on the target format
  std::unique_ptr<Calibrator> (*make)(std::string_view method, const CalibratorOptions& options);
};

/// Returns the method of this name, or null.
[[nodiscard]] const CalibMethod* find_calib_method(std::string_view name) noexcept;
/// Whether merging collectors on parts of the data gives, bit by bit, the result of one collector on all
/// data.
[[nodiscard]] bool merges_exactly(const CalibMethod& method) noexcept;
/// Returns the reading of the method; empty for a method without a histogram or an unknown method.
[[nodiscard]] std::string_view histogram_reading(std::string_view method) noexcept;
/// Returns whether the method requires a histogram without zeros.
[[nodiscard]] bool skips_zeros(std::string_view method) noexcept;
/// Throws ArgumentError that begins with `where` and lists the methods of the kind, unless `method` is one.
void check_kind(std::string_view kind, std::string_view method, const char* where);

#define FQ_CALIB_METHOD(name) \
  [[nodiscard]] std::unique_ptr<Calibrator> make_##name(const CalibratorOptions& options);
#define FQ_HISTOGRAM_METHOD(name, kind, reading)                                 \
  [[nodiscard]] std::unique_ptr<Calibrator> make_##kind(std::string_view method, \
                                                        const CalibratorOptions& options);
#include "fakequant/core/detail/calib_methods.def"

}  // namespace fq::detail
