#pragma once

/// Summaries of runs, for a table with one row per run.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/report/detail/runs/run_record.h"

namespace fq::detail {

/// Result of a run. Unknown numbers are empty.
struct RunSummary {
  std::string name, command, model, format, state;
  bool validated = false;  ///< whether `accuracy` and `loss` are validation scores
  std::optional<double> accuracy = {},
                        loss = {};         ///< of the best epoch in validation, else of the last; percent
  std::optional<std::int64_t> bytes = {};  ///< of weights
  std::optional<double> bits = {};         ///< per parameter
  std::optional<double> ms_per_step = {}, seconds = {};
  std::optional<double> latency_ms = {};  ///< of one sample in `engine`
  std::string engine = {};
  nlohmann::ordered_json given = {}, defaults = {};  ///< flags
};

/// Summarizes config.json and metrics.jsonl of a run directory.
[[nodiscard]] RunSummary summarize_run(const std::string& name, const nlohmann::ordered_json& config,
                                       const RunRecord& record);

/// Returns the given flags whose values, with defaults, differ between the runs.
[[nodiscard]] std::vector<std::string> differing_flags(const std::vector<RunSummary>& runs);
/// Returns the value of a flag, given or default. Returns an empty text without a value and for a toggle that
/// is off.
[[nodiscard]] std::string flag_text(const RunSummary& run, const std::string& flag);

}  // namespace fq::detail

namespace fq::html {

/// Returns a page with a sortable table, and a figure of accuracy over the bytes of the weights.
[[nodiscard]] std::string compare_html(const std::vector<fq::detail::RunSummary>& runs);

}  // namespace fq::html
