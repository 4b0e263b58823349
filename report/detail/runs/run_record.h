#pragma once

/// Record of a training run: metrics.jsonl of a run directory (docs/runs.md). Each line is one JSON object,
/// in the order of the events.
///
/// Every object has an `event` and the `step` of the event:
/// - `start`: `time`, `command`. A resumed run has several of them;
/// - `step`: `epoch`, `loss`, `accuracy`, `lr`, `images_per_second`, `loader_share`, means of the epoch so
///   far;
/// - `epoch`: the same, the validation scores (in percent, as the command prints them), `quantizers` ({name:
///   {amax, clipped}}) and `phases` ({kind: milliseconds per step});
/// - `classes`: `confusion` (counts by class and prediction) and the `worst` samples;
/// - `end`: `result`.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

struct RunRecord {
  std::vector<nlohmann::ordered_json> lines;

  /// Reads the file and drops an incomplete last line. Throws FileError naming a line that is no event of a
  /// run.
  [[nodiscard]] static RunRecord load(const std::string& path);
  /// Returns the content of the file.
  [[nodiscard]] std::string text() const;

  /// Removes the lines of later steps. A run resumes from a checkpoint, which may be older than the last
  /// line.
  void truncate(std::int64_t step);
  /// Returns the last line of that event; null without one.
  [[nodiscard]] const nlohmann::ordered_json* last(std::string_view event) const;
};

/// Returns the number at `key`; NaN without one.
[[nodiscard]] double number_field(const nlohmann::ordered_json& line, const std::string& key);

/// Returns comma-separated values: a row for each step and epoch, a column for each of their numbers.
[[nodiscard]] std::string metrics_csv(const RunRecord& record);

}  // namespace fq::detail
