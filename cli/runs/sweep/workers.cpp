#include "fakequant/cli/runs/sweep/workers.h"

#include <filesystem>
#include <future>

#include <fmt/format.h>

#include "fakequant/cli/system/child_process.h"
#include "fakequant/cli/system/machine.h"

namespace fq::cli {
namespace {

constexpr double kSecondsToSave = 60;  // that a point which trains has for its batch and its checkpoint

}  // namespace

int Workers::run(int jobs, int threads) {
  std::vector<std::future<void>> workers;  // which wait where one of them cannot begin
  for (int i = 0; i < jobs; ++i)
    workers.push_back(std::async(std::launch::async, [this, threads] { work(threads); }));
  for (auto& worker : workers) worker.get();
  return failed_;
}

void Workers::work(int threads) {
  for (std::size_t i = next_++; i < trials_.size() && !stop_requested(); i = next_++) {
    const Trial& trial = trials_[i];
    std::error_code none;
    if (std::filesystem::exists(trial.report(), none)) {
      ++done_;
      tell(fmt::format("[{}/{}] {}: done before", i + 1, trials_.size(), trial.words()));
      continue;
    }
    run_trial(trial, i, threads);
  }
}

void Workers::run_trial(const Trial& trial, std::size_t place, int threads) {
  std::error_code none;
  std::filesystem::create_directories(trial.folder, none);
  std::vector<std::string> words{"/proc/self/exe", "run"};
  for (auto& word : run_arguments(trial, flags_)) words.push_back(std::move(word));
  words.push_back("--threads=" + std::to_string(threads));
  words.emplace_back("--resume");
  const Stopwatch watch;
  const ProgramEnd end = run_program(words, {.output_file = trial.folder + "/output.txt",
                                             .error_file = trial.folder + "/errors.txt",
                                             .stop_seconds = kSecondsToSave});
  if (end.status == 0) {
    ++done_;
    return tell(
        fmt::format("[{}/{}] {}: {}", place + 1, trials_.size(), trial.words(), duration(watch.seconds())));
  }
  if (stop_requested())
    return tell(fmt::format("[{}/{}] {}: stopped", place + 1, trials_.size(), trial.words()));
  ++failed_;
  tell(fmt::format("[{}/{}] {}: exit status {}, see {}/errors.txt", place + 1, trials_.size(), trial.words(),
                   end.status, trial.folder));
}

void Workers::tell(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  output_.line(text);
}

}  // namespace fq::cli
