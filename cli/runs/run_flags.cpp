#include "fakequant/cli/runs/run_flags.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostKept = 1 << 20;

std::vector<std::string> logs_of(const Flags& flags) {
  std::vector<std::string> out;
  const std::string text = flags.text("log");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace

void check_run_flags(const Flags& flags) {
  (void)kept_epochs(flags);
  const std::vector<std::string> known{"csv", "tensorboard"};
  for (const auto& name : logs_of(flags))
    FQ_CHECK(std::ranges::find(known, name) != known.end(), flags.command(), "{} is '{}'{}",
             flags.shown("log"), name, fq::detail::did_you_mean(name, known));
  for (const char* name : {"keep_epochs", "log"})
    FQ_CHECK(!flags.given(name) || run_folder(flags), flags.command(),
             "{} is for a run directory, and --output names a file: name a folder, such as {}/",
             flags.shown(name), fs::path(flags.text("output")).replace_extension().string());
}

std::int64_t kept_epochs(const Flags& flags) { return flags.integer("keep_epochs", 0, kMostKept); }

bool logs(const Flags& flags, const std::string& name) {
  const auto all = logs_of(flags);
  return std::ranges::find(all, name) != all.end();
}

}  // namespace fq::cli
