#pragma once

/// From tokens back to text, as tokenizer.json describes it.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace fq::detail {

/// Changes the tokens of a text, whose texts in their order are the text in the end.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string>)>;

/// A "decoder": Sequence, ByteLevel, Metaspace, ByteFallback, Fuse, Replace of a string, Strip; null is none.
/// Bytes that are no UTF-8 stay as they are. Throws ArgumentError naming the known ones.
[[nodiscard]] Decoder read_decoder(const nlohmann::json& json);

}  // namespace fq::detail
