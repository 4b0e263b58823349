#include "fakequant/cli/commands/profile.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

bool wanted(const Flags& flags) { return flags.given("profile") && is_first_rank(); }

std::string trace_path(const Flags& flags) {
  if (!flags.text("profile").empty()) return flags.text("profile");
  if (const auto folder = run_folder(flags)) return folder->file("profile.json");
  const std::string output = flags.text("output");
  FQ_CHECK(has_files_beside(output), flags.command(),
           "--profile: nothing is put beside {}, which is no file: name one by --profile=FILE", output);
  return beside_checkpoint(output, ".profile.json");
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

std::vector<WrittenFile> profile_files(const Flags& flags) {
  if (!wanted(flags)) return {};
  return {{trace_path(flags), kind::trace}};
}

ProfileReport::ProfileReport(const Flags& flags) {
  if (wanted(flags)) session_ = std::make_unique<Session>(trace_path(flags));
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
