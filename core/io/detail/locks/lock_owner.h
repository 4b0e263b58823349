#pragma once

/// Who has a lock: a process, on a host.

#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace fq::detail {

struct LockOwner {
  std::string host = {};
  pid_t process = 0;
  std::string started = {};  ///< of the process, in ticks since the host was started; empty where not known

  [[nodiscard]] static LockOwner self();
  /// Of what `text` gave; nothing for anything else.
  [[nodiscard]] static std::optional<LockOwner> parse(std::string_view text);
  /// "HOST PROCESS STARTED", one line without its end.
  [[nodiscard]] std::string text() const;
  /// "process 12 on host".
  [[nodiscard]] std::string words() const;
  /// Whether it is a process of this host that has ended. Of other hosts nothing is known: false.
  [[nodiscard]] bool is_gone() const;
};

}  // namespace fq::detail
