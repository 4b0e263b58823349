#include "fakequant/cli/profile.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/check.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

std::string trace_path(const Flags& flags, const std::string& output) {
  if (!flags.text("profile").empty()) return flags.text("profile");
  return std::filesystem::path(output).replace_extension(".profile.json").string();
}

ordered_json rows_of(const Profile& profile) {
  auto rows = ordered_json::array();
  for (const ProfileRow& row : profile.rows)
    rows.push_back({{"layer", row.layer},
                    {"kind", row.kind},
                    {"ms", row.milliseconds},
                    {"share", row.share},
                    {"calls", row.calls}});
  return rows;
}

}  // namespace

struct ProfileReport::Session {
  explicit Session(std::string trace) : path(std::move(trace)), file(path) {}
  std::string path;
  AtomicFile file;  // opened before training: a place that cannot be written is found out at once
  Profiler profiler;
  ProfilerScope scope{profiler};
};

ProfileReport::ProfileReport(const Flags& flags, const std::string& output) {
  if (!flags.given("profile")) return;
  const std::string path = trace_path(flags, output);
  std::error_code none;
  FQ_CHECK(path != output && !std::filesystem::equivalent(path, output, none), flags.command(),
           "--profile and --output are both {}: give two files", path);
  session_ = std::make_unique<Session>(path);
}

ProfileReport::~ProfileReport() = default;

ordered_json ProfileReport::finish(Output& output) {
  if (!session_) return ordered_json::object();
  const Profile profile = session_->profiler.profile();
  session_->file.write(session_->profiler.trace());
  session_->file.commit();
  output.line(profile_table(profile));
  output.line(
      fmt::format("{:.2f} ms a step over {} steps, {}", profile.milliseconds, profile.steps, session_->path));
  return {{"profile",
           {{"trace", session_->path},
            {"steps", profile.steps},
            {"ms_per_step", profile.milliseconds},
            {"rows", rows_of(profile)}}}};
}

}  // namespace fq::cli
