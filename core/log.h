#pragma once

/// Log messages for the user of a program. The library never prints; it calls a callback if one is set.
///
///     set_log_callback([](LogLevel level, std::string_view message) {
///       std::cerr << name(level) << ": " << message << '\n';
///     });
///
/// The library logs warnings, and the device selected by "auto" as info. Errors are thrown, not logged. The
/// other levels are for programs that share the callback.

#include <functional>
#include <string_view>

namespace fq {

/// Severity of a message, in rising order.
enum class LogLevel : unsigned char { debug, info, warning, error };

/// "debug", "info", "warning" or "error".
[[nodiscard]] std::string_view name(LogLevel level) noexcept;

/// Receives one message: one line of UTF-8, as in an error. Calls never overlap, even from several threads.
/// Exceptions from the callback are dropped. The callback may log.
using LogCallback = std::function<void(LogLevel level, std::string_view message)>;

/// Sets the callback of the process. An empty callback (the default) drops every message. Thread-safe; a
/// message in progress still uses the previous callback.
void set_log_callback(LogCallback callback);

/// Passes `message` to the callback. Thread-safe; never throws.
void log(LogLevel level, std::string_view message) noexcept;

/// Drops all messages of this thread for the lifetime of this object.
class QuietLog {
 public:
  QuietLog() noexcept;
  ~QuietLog();
  QuietLog(const QuietLog&) = delete;  // tied to its block
  QuietLog& operator=(const QuietLog&) = delete;
};

}  // namespace fq
