#pragma once

/// The files of a run directory that grow, and those that are written anew beside them.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "fakequant/cli/runs/event_log.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/core/io/detail/line_file.h"
#include "fakequant/report/detail/runs/run_record.h"

namespace fq::cli {

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
