#pragma once

/// The sections of the page of a run; each is empty where there is nothing to show.

#include <map>
#include <string>

#include "fakequant/report/detail/runs/run_record.h"

namespace fq::html {

/// Loss, accuracy or other scores, learning rate.
[[nodiscard]] std::string curves_section(const fq::detail::RunRecord& record, double last_step);
/// A bar of the work of a step.
[[nodiscard]] std::string phases_section(const fq::detail::RunRecord& record);
/// A line for each quantizer: its range and what it clips, over time.
[[nodiscard]] std::string ranges_section(const fq::detail::RunRecord& record, double last_step);
/// The matrix of classes, of many the pairs that are most often confused, and the worst samples.
[[nodiscard]] std::string classes_section(const fq::detail::RunRecord& record,
                                          const std::map<std::int64_t, std::string>& shown);
/// Flags and settings as a table that opens.
[[nodiscard]] std::string settings_section(const nlohmann::ordered_json& config);

}  // namespace fq::html
