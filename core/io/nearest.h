#pragma once

/// The names that a mistyped one was probably meant to be; not a public header.

#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

/// At most `count` of `candidates`, by edit distance to `name`, nearest first; ties keep their order.
[[nodiscard]] std::vector<std::string> nearest_names(std::string_view name,
                                                     const std::vector<std::string>& candidates,
                                                     std::size_t count = 3);

/// "did you mean a, b or c?", or "there are none" without candidates.
[[nodiscard]] std::string suggest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace fq::detail
