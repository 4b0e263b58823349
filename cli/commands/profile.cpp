#include "fakequant/cli/commands/profile.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include <fmt/format.h>

#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

// The other ranks do the same work.
bool wanted(const TrainingOptions& options) { return options.profile && is_first_rank(); }

// The path of --profile=FILE, else a file in the run directory, else one next to the checkpoint.
std::string trace_path(const TrainingOptions& options) {
  if (!options.profile->empty()) return *options.profile;
  if (const auto folder = run_folder(options.output)) return folder->file("profile.json");
  FQ_CHECK(allows_sibling_files(options.output), options.command,
           "--profile: {} is no file, so the trace has no default name: use --profile=FILE", options.output);
  return sibling_path(options.output, ".profile.json");
}

ordered_json profile_rows(const Profile& profile) {
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
  AtomicFile file;  // opened before training, so that errors come early
  Profiler profiler;
  ProfilerScope scope{profiler};
};

std::vector<WrittenFile> profile_files(const TrainingOptions& options) {
  if (!wanted(options)) return {};
  return {{trace_path(options), kind::trace}};
}

ProfileReport::ProfileReport(const TrainingOptions& options) {
  if (wanted(options)) session_ = std::make_unique<Session>(trace_path(options));
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
            {"rows", profile_rows(profile)}}}};
}

namespace {

constexpr std::array<std::string_view, 7> kColumns{"quantize", "product", "dX",      "dW",
                                                   "epilogue", "forward", "backward"};
using Cells = std::array<double, kColumns.size() + 1>;  // columns and their sum

struct Line {
  std::string label;
  Cells cells{};
};

/// Returns the layer of a module: "conv1.input_quantizer" is part of conv1.
std::string layer_name(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  // The last part of the path names a quantizer, or a part of one: "input_quantizer", "weight_quantizer.0".
  const bool quantizer = path.find("_quantizer", dot == std::string::npos ? 0 : dot) != std::string::npos;
  return quantizer && dot != std::string::npos ? path.substr(0, dot) : path;
}

// Returns the column of a kind of work, or kColumns.size() for one that only counts in the sum.
std::size_t column_index(const std::string& kind) {
  if (kind.starts_with("quantize") || kind == "tensor_quantizer forward") return 0;
  if (kind == "product forward") return 1;
  if (kind.ends_with(" forward")) return 5;
  if (kind.ends_with(" backward")) return 6;
  const auto* known = std::ranges::find(kColumns, kind);
  return static_cast<std::size_t>(known - kColumns.begin());
}

/// Returns the label of a table line: the layer, or the kind of work outside of layers.
std::string row_label(const ProfileRow& row) {
  return row.layer.empty() ? fmt::format("({})", row.kind) : layer_name(row.layer);
}

// Lines in the order of their first row, and the sum at the end.
std::vector<Line> layer_lines(const Profile& profile) {
  std::vector<Line> lines;
  Line all{"all"};
  for (const ProfileRow& row : profile.rows) {
    const std::string label = row_label(row);
    auto line = std::ranges::find(lines, label, &Line::label);
    if (line == lines.end()) line = lines.insert(lines.end(), {label});
    // Cells that belong to no column are in "all", the last cell.
    for (Cells* cells : {&line->cells, &all.cells}) {
      if (column_index(row.kind) < kColumns.size()) (*cells)[column_index(row.kind)] += row.milliseconds;
      cells->back() += row.milliseconds;
    }
  }
  lines.push_back(all);
  return lines;
}

}  // namespace

std::string profile_table(const Profile& profile) {
  const auto lines = layer_lines(profile);
  std::size_t width = 8;
  for (const Line& line : lines) width = std::max(width, line.label.size());
  std::string out = fmt::format("{:<{}}", "ms", width);
  for (const auto column : kColumns) out += fmt::format(" {:>8}", column);
  out += fmt::format(" {:>9} {:>7}", "all", "share");
  for (const Line& line : lines) {
    out += fmt::format("\n{:<{}}", line.label, width);
    for (std::size_t i = 0; i < kColumns.size(); ++i)
      out += line.cells[i] == 0 ? fmt::format(" {:>8}", "") : fmt::format(" {:>8.3f}", line.cells[i]);
    const double share = profile.milliseconds > 0 ? line.cells.back() / profile.milliseconds : 0;
    out += fmt::format(" {:>9.3f} {:>5.1f} %", line.cells.back(), 100 * share);
  }
  return out;
}

}  // namespace fq::cli
