#pragma once

/// Element types by the names that torch has for them, which golden files and Python use.

#include <optional>
#include <string_view>

#include "fakequant/core/dtype.h"

namespace fq::detail {

/// The type called "float8_e4m3fn", with or without "torch." before it; "float8" is e4m3, as Tripy has it.
/// Empty for names that torch does not have.
[[nodiscard]] std::optional<DType> dtype_of_torch(std::string_view name);

}  // namespace fq::detail
