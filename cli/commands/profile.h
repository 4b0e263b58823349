#pragma once

/// --profile: where the time of a training run goes, as a table and as a trace.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fakequant/cli/tables/output.h"
#include "fakequant/cli/training.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/profile.h"

namespace fq::cli {

/// Returns the files of --profile.
[[nodiscard]] std::vector<WrittenFile> profile_files(const TrainingOptions& options);

/// Profiles the training of this thread during its lifetime, if --profile is given.
class ProfileReport {
 public:
  /// Opens the trace file of --profile, by default `<output>.profile.json`. Throws FileError if the
  /// file cannot be written.
  explicit ProfileReport(const TrainingOptions& options);
  ~ProfileReport();
  ProfileReport(const ProfileReport&) = delete;  // installed on its thread
  ProfileReport& operator=(const ProfileReport&) = delete;

  /// Prints the table, writes the trace and returns {"profile": ..} for machines. Does nothing without
  /// --profile.
  [[nodiscard]] nlohmann::ordered_json finish(Output& output);

 private:
  struct Session;
  std::unique_ptr<Session> session_;
};

/// Returns a table with one line per layer and one column per kind of work, in milliseconds per step.
/// Quantizers count as part of their layer.
[[nodiscard]] std::string profile_table(const Profile& profile);

}  // namespace fq::cli
