#include "fakequant/cli/system/streams.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include "fakequant/cli/system/process.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/line_file.h"
#include "fakequant/core/log.h"

namespace fq::cli {
namespace {

// First error of standard output, as errno. Later output is dropped, so that a reader never sees a gap.
int first_error = 0;
bool silent = false;

void write(std::string_view text) noexcept {
  errno = 0;
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) != 0 || !whole) first_error = errno != 0 ? errno : EIO;
}

}  // namespace

void open_standard_streams() {
  // open() returns the lowest free number, so the loop fills 0, 1 and 2 and stops at the first one above.
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

bool is_terminal() {
  if (isatty(STDOUT_FILENO) != 1 || silent) return false;
  // Open MPI gives its ranks a terminal. The user sees the standard output of mpiexec, the parent process.
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return true;
  std::error_code none;
  const auto of_mpiexec =
      std::filesystem::read_symlink("/proc/" + std::to_string(getppid()) + "/fd/1", none).string();
  return of_mpiexec.starts_with("/dev/pts/") || of_mpiexec.starts_with("/dev/tty");
}

// The reader closed the pipe on purpose, as `head` does.
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

namespace {

// Warnings may come from any thread.
std::mutex transcript_mutex;
std::unique_ptr<LineFile> transcript;

}  // namespace

std::string time_now() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

void begin_transcript(const std::string& path) {
  const std::scoped_lock lock(transcript_mutex);
  transcript = std::make_unique<LineFile>(path);
}

void note_line(std::string_view text) noexcept try {
  const std::scoped_lock lock(transcript_mutex);
  if (!transcript) return;
  const std::string now = time_now();
  // Every line of a text gets a time stamp, also an empty text.
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    transcript->add(now + " " + one_line(std::string(text.substr(begin, end - begin))));
    begin = end + 1;
  }
} catch (const std::exception&) {
}

void end_transcript() noexcept try {
  const std::scoped_lock lock(transcript_mutex);
  // Reset before the sync, so that an error of the disk does not keep the file open.
  const auto ended = std::exchange(transcript, nullptr);
  if (ended) ended->sync();
} catch (const std::exception&) {
}

namespace {

void print_log(LogLevel level, std::string_view message) {
  if (level < LogLevel::info) return;
  complain(fmt::format("{}: {}", name(level), message));
}

}  // namespace

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return fq::detail::printable(text);
}

void print_warnings() { set_log_callback(print_log); }

}  // namespace fq::cli
