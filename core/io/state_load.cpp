#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/state_header.h"
#include "fakequant/core/io/detail/state_reader.h"
#include "fakequant/core/io/state_file.h"

namespace fq {
namespace {

void check_kind(const std::string& path, const std::string& found, std::string_view wanted) {
  if (wanted.empty() || wanted == found) return;
  throw FileError(path, "",
                  fmt::format("[load_state] {} is a file of {}, expected one of {}", path, found, wanted));
}

/// What is damaged says so, whatever it led to.
StateDict whole_state(const detail::FileReader& file, const detail::StateHeader& header) {
  try {
    return detail::read_state(file, header);
  } catch (const std::exception&) {
    verify_body(file, header);
    throw;
  }
}

}  // namespace

StateDict load_state(const std::string& path, std::string_view kind) {
  const detail::FileReader file(path);
  const auto header = detail::read_header(file);
  check_kind(path, header.kind, kind);
  try {
    return whole_state(file, header);
  } catch (const nlohmann::json::exception&) {
    throw FileError(path, "", fmt::format("[load_state] {} is damaged: its listing is none", path));
  } catch (const ArgumentError& error) {
    throw FileError(path, "", fmt::format("[load_state] {} is not well formed: {}", path, error.what()));
  }
}

StateFileInfo state_file_info(const std::string& path) {
  const detail::FileReader file(path);
  const auto header = detail::read_header(file);
  return {header.kind, header.version, file.size()};
}

}  // namespace fq
