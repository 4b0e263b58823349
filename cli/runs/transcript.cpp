#include "fakequant/cli/runs/transcript.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/chrono.h>

#include "fakequant/cli/tables/warnings.h"
#include "fakequant/core/io/detail/line_file.h"

namespace fq::cli {
namespace {

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
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    transcript->add(now + " " + one_line(std::string(text.substr(begin, end - begin))));
    begin = end + 1;
  }
} catch (const std::exception&) {
}

void end_transcript() noexcept try {
  const std::scoped_lock lock(transcript_mutex);
  const auto ended = std::exchange(transcript, nullptr);
  if (ended) ended->sync();
} catch (const std::exception&) {
}

}  // namespace fq::cli
