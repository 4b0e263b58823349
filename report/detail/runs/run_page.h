#pragma once

/// A training run as a page to look at, while it goes on and afterwards: one HTML file that needs nothing
/// else.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/report/detail/runs/run_record.h"

namespace fq::html {

/// What is on the page.
struct RunPage {
  std::string title;
  nlohmann::ordered_json config;                   ///< config.json of the run directory
  const fq::detail::RunRecord* record = nullptr;   ///< what was told so far
  std::map<std::int64_t, std::string> shown = {};  ///< HTML of samples by their row: pictures or texts
  double seconds_left = -1;                        ///< while it goes on; negative where it has ended
};

/// Curves of loss, scores and learning rate, the time of a step by its work, ranges of quantizers and what
/// they clip over time, how often each class is taken for another, the worst samples, and the settings. While
/// the run goes on a browser that shows the page reads it again every ten seconds.
[[nodiscard]] std::string run_html(const RunPage& page);

}  // namespace fq::html
