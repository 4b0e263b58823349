#include "fakequant/cli/tables/warnings.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/cli/system/standard_streams.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/log.h"

namespace fq::cli {
namespace {

void on_log(LogLevel level, std::string_view message) {
  if (level < LogLevel::info) return;
  complain(fmt::format("{}: {}", name(level), message));
}

}  // namespace

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return fq::detail::printable(text);
}

void print_warnings() { set_log_callback(on_log); }

}  // namespace fq::cli
