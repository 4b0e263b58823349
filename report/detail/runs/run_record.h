#pragma once

/// What a training run has told, one JSON object a line in the order in which it happened: metrics.jsonl of a
/// run directory (docs/runs.md).
///
/// Every object has an `event` and the `step` that it is of:
/// - `start`: `time`, `command`; once more where the run was gone on with;
/// - `step`: `epoch`, `loss`, `accuracy`, `lr`, `images_per_second`, `loader_share`, means of the epoch so
/// far;
/// - `epoch`: the same and what validation found, percent as the command prints it, `quantizers` ({name:
/// {amax,
///   clipped}}) and `phases` ({kind: milliseconds a step});
/// - `classes`: `confusion`, how often each class was taken for each, and the `worst` samples;
/// - `end`: `result`.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

struct RunRecord {
  std::vector<nlohmann::ordered_json> lines;

  /// Reads the file; a last line without its end is left out. Throws FileError naming the line that is no
  /// object of a run.
  [[nodiscard]] static RunRecord load(const std::string& path);
  /// The file of these lines.
  [[nodiscard]] std::string text() const;

  /// Leaves out what is of later steps: a run goes on from a checkpoint that is older than its last line.
  void forget_after(std::int64_t step);
  /// The last line of that event; null where there is none.
  [[nodiscard]] const nlohmann::ordered_json* last(std::string_view event) const;
};

/// The number at `key`, NaN where there is none.
[[nodiscard]] double number_at(const nlohmann::ordered_json& line, const std::string& key);

/// As a table of comma-separated values: a row for each step and epoch, a column for each of their numbers.
[[nodiscard]] std::string metrics_csv(const RunRecord& record);

}  // namespace fq::detail
