#pragma once

/// Runs beside each other: a line for each.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/report/detail/runs/run_record.h"

namespace fq::detail {

/// What a run came to; numbers that are not known are left out.
struct RunSummary {
  std::string name, command, model, format, state;
  bool validated = false;  ///< whether `accuracy` and `loss` are of validation
  std::optional<double> accuracy = {},
                        loss = {};         ///< of the best epoch in validation, else of the last; percent
  std::optional<std::int64_t> bytes = {};  ///< of weights
  std::optional<double> bits = {};         ///< a parameter
  std::optional<double> ms_per_step = {}, seconds = {};
  std::optional<double> latency_ms = {};  ///< of one sample in `engine`
  std::string engine = {};
  nlohmann::ordered_json given = {}, defaults = {};  ///< flags
};

/// Of config.json and metrics.jsonl of a run directory.
[[nodiscard]] RunSummary summary_of(const std::string& name, const nlohmann::ordered_json& config,
                                    const RunRecord& record);

/// The flags that were given to a run and are not the same in all, by default or because they were given.
[[nodiscard]] std::vector<std::string> differing_flags(const std::vector<RunSummary>& runs);
/// The value of that flag, given or by default; empty where there is none, and of a toggle that is off.
[[nodiscard]] std::string flag_text(const RunSummary& run, const std::string& flag);

}  // namespace fq::detail

namespace fq::html {

/// A page with a table that sorts, and accuracy over the bytes of the weights as a figure.
[[nodiscard]] std::string compare_html(const std::vector<fq::detail::RunSummary>& runs);

}  // namespace fq::html
