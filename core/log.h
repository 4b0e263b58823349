#pragma once

/// Messages for whoever runs the program: what goes on in another way than one might expect. The library
/// never prints: it calls the callback, if there is one.
///
///     set_log_callback([](LogLevel level, std::string_view message) {
///       std::cerr << name(level) << ": " << message << '\n';
///     });
///
/// The library itself logs warnings and, as info, which device "auto" is; errors are thrown. The other levels
/// are there for programs that share the callback.

#include <functional>
#include <string_view>

namespace fq {

/// How much a message matters, in rising order.
enum class LogLevel : unsigned char { debug, info, warning, error };

/// "debug", "info", "warning" or "error".
[[nodiscard]] std::string_view name(LogLevel level) noexcept;

/// Takes one message, one line of UTF-8 as an error's. Calls never overlap, from whatever threads they come;
/// what a callback throws is dropped. It may log itself.
using LogCallback = std::function<void(LogLevel level, std::string_view message)>;

/// Replaces the callback of the process; an empty one (the default) drops every message. It may be called
/// from any thread; a message under way still goes to the one before.
void set_log_callback(LogCallback callback);

/// Hands `message` to the callback. It may be called from any thread and never throws.
void log(LogLevel level, std::string_view message) noexcept;

/// Nothing that this thread logs reaches the callback while it lives.
class QuietLog {
 public:
  QuietLog() noexcept;
  ~QuietLog();
  QuietLog(const QuietLog&) = delete;  // tied to its block
  QuietLog& operator=(const QuietLog&) = delete;
};

}  // namespace fq
