#include "fakequant/cli/system/standard_streams.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "fakequant/cli/runs/transcript.h"
#include "fakequant/cli/system/out_of_memory.h"
#include "fakequant/cli/tables/warnings.h"

namespace fq::cli {
namespace {

int first_error = 0;
bool silent = false;

void write(std::string_view text) noexcept {
  errno = 0;
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) != 0 || !whole) first_error = errno != 0 ? errno : EIO;
}

}  // namespace

void open_standard_streams() {
  int number = ::open("/dev/null", O_RDWR);
  while (number >= 0 && number <= STDERR_FILENO) number = ::open("/dev/null", O_RDWR);
  if (number > STDERR_FILENO) ::close(number);
}

void silence() noexcept { silent = true; }
void speak() noexcept { silent = false; }

void put(std::string_view text) noexcept {
  if (silent) return;
  if (first_error == 0) write(text);
}

bool on_terminal() {
  if (isatty(STDOUT_FILENO) != 1 || silent) return false;
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return true;
  std::error_code none;
  const auto of_mpiexec =
      std::filesystem::read_symlink("/proc/" + std::to_string(getppid()) + "/fd/1", none).string();
  return of_mpiexec.starts_with("/dev/pts/") || of_mpiexec.starts_with("/dev/tty");
}

bool output_failed() noexcept { return first_error != 0 && first_error != EPIPE; }

void complain(std::string_view message) noexcept {
  if (silent) return;
  note_line(message);
  try {
    const std::string line = "fakequant: " + one_line(std::string(message)) + "\n";
    static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr));
  } catch (const std::bad_alloc&) {
    complain_of_memory();
  }
}

}  // namespace fq::cli
