#pragma once

/// Files that a run adds to: metrics.jsonl, events of TensorBoard, kept checkpoints, report.html.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/core/io/detail/line_file.h"
#include "fakequant/report/detail/runs/run_record.h"

namespace fq::cli {

/// Throws ArgumentError for those settings without a run directory, and for unknown words of `log`.
void check_run_flags(const Flags& flags);
/// Returns the number of epochs whose checkpoints are kept.
[[nodiscard]] std::int64_t kept_epochs(const Flags& flags);
/// Returns true if `log` names it: "csv", "tensorboard".
[[nodiscard]] bool logs(const Flags& flags, const std::string& name);

/// The event file of TensorBoard in a run directory.
class EventLog {
 public:
  /// A new file of that folder, "events.out.tfevents.<seconds>.fakequant"; those of before stay beside it.
  explicit EventLog(const std::string& folder);
  ~EventLog();
  EventLog(EventLog&&) noexcept;

  /// What a file of before told of later steps does not count.
  void begin(std::int64_t step);
  /// The numbers of a line of the record; of epochs as "epoch/loss", of quantizers as
  /// "amax/conv1.input_quantizer".
  void add(const nlohmann::ordered_json& line);
  /// What was added is safe from a loss of power.
  void sync();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

/// Makes the folder of a run that begins, in place of one that --force replaces, and begins its log. Nothing
/// without a run directory, and on other ranks than the first.
void open_run_folder(const Flags& flags);

class RunFiles {
 public:
  RunFiles(RunFolder folder, const Flags& flags);

  [[nodiscard]] const RunFolder& folder() const noexcept { return folder_; }
  [[nodiscard]] const fq::detail::RunRecord& record() const noexcept { return record_; }
  [[nodiscard]] bool began() const noexcept { return metrics_.has_value(); }

  /// Writes config.json, and the record without what it tells of steps after `step`.
  void begin(const nlohmann::ordered_json& config, std::int64_t step);
  /// To the record alone, or to TensorBoard's file too.
  void add(nlohmann::ordered_json line);
  void add_numbers(nlohmann::ordered_json line);
  /// What was added is safe from a loss of power.
  void sync();
  /// keep_epochs: the last checkpoint as that of an epoch, from 1; one of so many epochs before is removed.
  void keep_epoch(std::int64_t epoch) const;
  /// report.html and, with log=csv, metrics.csv.
  void write_page(const std::string& html) const;

 private:
  RunFolder folder_;
  std::int64_t keep_;
  bool writes_table_;
  std::optional<EventLog> events_;
  std::optional<LineFile> metrics_;
  fq::detail::RunRecord record_;
};

}  // namespace fq::cli
