#include "fakequant/core/error.h"

#include <string_view>

#include "fakequant/core/detail/text.h"

namespace fq {
namespace {

/// Removes the exception names of nlohmann::json from messages that quote them:
/// "[json.exception.type_error.302] ".
std::string remove_json_names(std::string message) {
  constexpr std::string_view kName = "[json.exception.";
  for (std::size_t at = 0; (at = message.find(kName, at)) != message.npos;) {
    const std::size_t end = message.find("] ", at);
    if (end == message.npos) break;
    message.erase(at, end + 2 - at);
  }
  return message;
}

}  // namespace

Error::Error(const std::string& message) : std::runtime_error(detail::one_line(remove_json_names(message))) {}

}  // namespace fq
