#pragma once

/// The page of a training run, during and after the run: one HTML file that loads no other file.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/report/detail/runs/run_record.h"

namespace fq::html {

/// Content of the page.
struct RunPage {
  std::string title;
  nlohmann::ordered_json config;                   ///< config.json of the run directory
  const fq::detail::RunRecord* record = nullptr;   ///< events of the run so far
  std::map<std::int64_t, std::string> shown = {};  ///< HTML of samples by row: pictures or texts
  double seconds_left = -1;                        ///< estimate; negative after the end of the run
};

/// Returns a page with curves of loss, scores and learning rate, the time of a step by kind of work, ranges
/// and clipping of quantizers over time, the confusion of classes, the worst samples, and the settings.
/// During the run, the browser reloads the page every ten seconds.
[[nodiscard]] std::string run_html(const RunPage& page);

}  // namespace fq::html
