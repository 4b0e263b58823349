#pragma once

/// Files that grow during a run: metrics.jsonl, events of TensorBoard, kept checkpoints, report.html.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/training.h"
#include "fakequant/core/io/detail/line_file.h"
#include "fakequant/report/detail/runs/run_record.h"

namespace fq::cli {

/// Throws ArgumentError if the settings keep_epochs and log are given without a run directory, and for
/// unknown words of `log`.
void check_run_settings(const TrainingOptions& options);

/// The event file of TensorBoard in a run directory.
class EventLog {
 public:
  /// Makes the file "events.out.tfevents.<seconds>.fakequant" in the folder. Earlier files stay.
  explicit EventLog(const std::string& folder);
  ~EventLog();
  EventLog(EventLog&&) noexcept;

  /// Marks the start at a step. TensorBoard then ignores later steps of earlier files.
  void begin(std::int64_t step);
  /// Adds the numbers of a line of the record. Names are "epoch/loss" for epochs and
  /// "amax/conv1.input_quantizer" for quantizers.
  void add(const nlohmann::ordered_json& line);
  /// Writes all added numbers to the disk.
  void sync();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

/// Makes the folder of a new run and begins its log. With --force it replaces an existing run. Does nothing
/// without a run directory and on ranks other than the first.
void open_run_folder(const TrainingOptions& options);

/// The files of a run directory that grow with the run.
class RunFiles {
 public:
  RunFiles(RunFolder folder, const TrainingOptions& options);

  [[nodiscard]] const RunFolder& folder() const noexcept { return folder_; }
  [[nodiscard]] const fq::detail::RunRecord& record() const noexcept { return record_; }
  [[nodiscard]] bool began() const noexcept { return metrics_.has_value(); }

  /// Writes config.json, and removes steps after `step` from the record.
  void begin(const nlohmann::ordered_json& config, std::int64_t step);
  /// Adds a line to the record. `add_numbers` adds it to the file of TensorBoard too.
  void add(nlohmann::ordered_json line);
  void add_numbers(nlohmann::ordered_json line);
  /// Writes all added lines to the disk.
  void sync();
  /// Keeps the last checkpoint as the checkpoint of an epoch, from 1. Removes the oldest one beyond
  /// keep_epochs.
  void keep_epoch(std::int64_t epoch) const;
  /// Writes report.html and, with log=csv, metrics.csv.
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
