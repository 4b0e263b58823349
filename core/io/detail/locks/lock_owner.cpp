#include "fakequant/core/io/detail/locks/lock_owner.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

namespace fq::detail {
namespace {

constexpr int kStartOfProcess = 20;  // fields of /proc/PID/stat between ") " and the time of its start - 1

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

std::string start_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line, field;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');  // names may hold spaces
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  for (int i = 0; i < kStartOfProcess; ++i) fields >> field;
  return fields ? field : std::string();
}

}  // namespace

LockOwner LockOwner::self() { return {host_name(), ::getpid(), start_of(::getpid())}; }

std::optional<LockOwner> LockOwner::parse(std::string_view text) {
  std::istringstream words{std::string(text)};
  LockOwner owner;
  if (!(words >> owner.host >> owner.process) || owner.process <= 0) return std::nullopt;
  words >> owner.started;
  return owner;
}

std::string LockOwner::text() const { return fmt::format("{} {} {}", host, process, started); }

std::string LockOwner::words() const { return fmt::format("process {} on {}", process, host); }

bool LockOwner::is_gone() const {
  if (host != host_name()) return false;
  if (::kill(process, 0) != 0 && errno == ESRCH) return true;
  const std::string now = start_of(process);
  return !started.empty() && !now.empty() && now != started;
}

}  // namespace fq::detail
