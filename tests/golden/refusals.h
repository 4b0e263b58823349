#pragma once

/// Messages of the library where a reference rejects input, and results of references that are accidents and
/// not reproduced.

#include <optional>
#include <string_view>

#include "case.h"

namespace fq::golden {

/// Words of our message that name the same mistake as the case's `error_message`; none where the list knows
/// no such message of its function.
[[nodiscard]] std::optional<std::string_view> expected_refusal(const Case& c);

/// Whether a degenerate case of that function may have another answer under out/ `output`.
[[nodiscard]] bool is_accident(std::string_view function, std::string_view output);

}  // namespace fq::golden
