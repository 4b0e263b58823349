#pragma once

/// --profile: where the time of a training run goes, as a table and as a trace.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/profile.h"

namespace fq::cli {

/// What --profile leads to.
[[nodiscard]] std::vector<WrittenFile> profile_files(const Flags& flags);

/// Profiles what this thread trains while it lives, if the flags ask for it.
class ProfileReport {
 public:
  /// The trace goes to the file of --profile, by default `<output>.profile.json`. Throws FileError when it
  /// cannot be written.
  explicit ProfileReport(const Flags& flags);
  ~ProfileReport();
  ProfileReport(const ProfileReport&) = delete;  // installed on its thread
  ProfileReport& operator=(const ProfileReport&) = delete;

  /// Prints the table and writes the trace; what machines read, as {"profile": ..}. Nothing when not asked
  /// for.
  [[nodiscard]] nlohmann::ordered_json finish(Output& output);

 private:
  struct Session;
  std::unique_ptr<Session> session_;
};

/// A line a layer, columns by kind, milliseconds a step; quantizers are counted to their layer.
[[nodiscard]] std::string profile_table(const Profile& profile);

}  // namespace fq::cli
