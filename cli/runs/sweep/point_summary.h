#pragma once

/// What a sweep came to, beside run directories.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fakequant/report/detail/runs/run_summary.h"

namespace fq::cli {

/// The report that `run` wrote. Throws FileError naming file, line and key where it is damaged.
[[nodiscard]] nlohmann::ordered_json read_report(const std::string& path);
/// Of a report of `run`: what the last phase tells that tells it; null where none does.
[[nodiscard]] nlohmann::ordered_json last_number(const nlohmann::ordered_json& report, const char* key);

/// The folders that a path stands for: of a sweep those of its points, else the path.
[[nodiscard]] std::vector<std::string> runs_at(const std::string& path);
/// Whether that is the folder of a point of a sweep.
[[nodiscard]] bool is_point(const std::string& path);
/// A point as a line of `compare`: its numbers are those of its report, its flags what the grid set.
[[nodiscard]] fq::detail::RunSummary summary_of_point(const std::string& path);

}  // namespace fq::cli
