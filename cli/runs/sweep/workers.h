#pragma once

/// Several trials at once, each a process.

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "fakequant/cli/command.h"
#include "fakequant/cli/runs/sweep/trials.h"

namespace fq::cli {

/// Keeps what it is given by reference.
class Workers {
 public:
  Workers(const std::vector<Trial>& trials, const Flags& flags, Output& output)
      : trials_(trials), flags_(flags), output_(output) {}

  /// Runs those without a report, `jobs` at once with so many threads each; returns how many failed.
  [[nodiscard]] int run(int jobs, int threads);
  /// Those that have a report now.
  [[nodiscard]] int done() const { return done_; }

 private:
  void work(int threads);
  void run_trial(const Trial& trial, std::size_t place, int threads);
  void tell(const std::string& text);

  const std::vector<Trial>& trials_;
  const Flags& flags_;
  Output& output_;
  std::atomic<std::size_t> next_{0};
  std::atomic<int> failed_{0}, done_{0};
  std::mutex mutex_;
};

}  // namespace fq::cli
