#pragma once

/// Checks of kernels against the scalar formulas. Each function describes the first element of y or of the
/// mask that differs after a run; an empty text means that all are equal.

#include <string>

namespace fq::bench {

struct Forward;

[[nodiscard]] std::string check_int8(const Forward& kernel);
[[nodiscard]] std::string check_int4(const Forward& kernel);
[[nodiscard]] std::string check_e4m3(const Forward& kernel);
[[nodiscard]] std::string check_nvfp4(const Forward& kernel);
[[nodiscard]] std::string check_mxfp8(const Forward& kernel);

}  // namespace fq::bench
