#include "fakequant/core/log.h"

#include <memory>
#include <mutex>

#include "fakequant/core/detail/text.h"

namespace fq {
namespace {

struct Sink {
  std::recursive_mutex mutex;  // a callback may log
  std::shared_ptr<const LogCallback> callback;
};

thread_local int quiet = 0;

Sink& sink() {
  static Sink* const instance = new Sink;  // outlives every static destructor that logs
  return *instance;
}

}  // namespace

std::string_view name(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "unknown";
}

void set_log_callback(LogCallback callback) {
  auto next = callback ? std::make_shared<const LogCallback>(std::move(callback)) : nullptr;
  const std::lock_guard lock(sink().mutex);
  sink().callback.swap(next);
}

QuietLog::QuietLog() noexcept { ++quiet; }
QuietLog::~QuietLog() { --quiet; }

// Logging must not fail its caller. A callback that throws loses its message.
void log(LogLevel level, std::string_view message) noexcept try {
  if (quiet > 0) return;
  const std::lock_guard lock(sink().mutex);
  if (const auto callback = sink().callback) (*callback)(level, detail::one_line(message));
} catch (...) {
}

}  // namespace fq
