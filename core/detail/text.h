#pragma once

/// Help for messages: the nearest valid name, wildcard patterns, and paths.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

/// ": did you mean 'conv1'?" for the nearest of `names`, or ": use one of a, b, c" where none is near; at
/// most 12.
[[nodiscard]] std::string did_you_mean(std::string_view name, const std::vector<std::string>& names);
/// The first 77 bytes and ".." of a text of more than 80 bytes.
[[nodiscard]] std::string shortened(const std::string& text);
/// "a, b or c".
[[nodiscard]] std::string alternatives(const std::vector<std::string>& names);
/// The `count` names at the smallest edit distance.
[[nodiscard]] std::vector<std::string> nearest(std::string_view name, std::vector<std::string> names,
                                               std::size_t count);
/// Shell-like: `*` any run of characters, `?` one, `[kv]` one of these.
[[nodiscard]] bool wildcard_match(std::string_view pattern, std::string_view text);
/// "'conv1.weight_quantizer'"; "the quantizer" where it has no name.
[[nodiscard]] std::string quantizer_label(std::string_view name);
/// "use 0 to 4" of five; "there are none" of nothing.
[[nodiscard]] std::string allowed_indices(std::int64_t count);
/// "prefix.name"; the name alone below an empty prefix.
[[nodiscard]] std::string join_path(const std::string& prefix, const std::string& name);

}  // namespace fq::detail
