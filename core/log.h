#pragma once

/// Messages for whoever runs the program. The library never prints: it calls the callback, if there is one.
///
///     set_log_callback([](LogLevel level, std::string_view message) {
///       std::cerr << name(level) << ": " << message << '\n';
///     });

#include <functional>
#include <string_view>

namespace fq {

enum class LogLevel : unsigned char { debug, info, warning, error };

/// "debug", "info", "warning" or "error".
[[nodiscard]] std::string_view name(LogLevel level) noexcept;

/// Takes one message, without a line end. Calls never overlap, from whatever threads they come; what it
/// throws is dropped. It may log itself.
using LogCallback = std::function<void(LogLevel level, std::string_view message)>;

/// Replaces the callback of the process; an empty one (the default) drops every message. Thread-safe.
void set_log_callback(LogCallback callback);

/// Hands `message` to the callback. Thread-safe, never throws.
void log(LogLevel level, std::string_view message) noexcept;

}  // namespace fq
