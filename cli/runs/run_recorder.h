#pragma once

/// RunRecorder: writes the files of a run directory during a training run.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/tables/training_report.h"
#include "fakequant/cli/training.h"
#include "fakequant/core/profile.h"
#include "fakequant/report/detail/runs/run_page.h"

namespace fq::cli {

/// Largest number of samples for the confusion of classes.
constexpr std::int64_t kMostExamined = 1000;

/// Data that a recorder evaluates in addition to the reports of the Trainer.
struct RecordedRun {
  const Run* run = nullptr;
  std::vector<std::int64_t> rows = {};  ///< rows of the examined data; empty without classes
  std::string of = {};                  ///< origin of the rows: "validation" or "training"
  std::int64_t batch = 64;              ///< samples per batch
};

class RunRecorder {
 public:
  RunRecorder(RunFolder folder, const TrainingOptions& options, RecordedRun recorded, TrainingReport& report);
  ~RunRecorder();
  RunRecorder(const RunRecorder&) = delete;  // callbacks refer to it
  RunRecorder& operator=(const RunRecorder&) = delete;

  /// Returns callbacks that call the report's callbacks and then write the files.
  [[nodiscard]] TrainerCallbacks callbacks();
  /// Call it before the first step. Writes config.json. For a run that resumes at `step`, removes later steps
  /// from the record.
  void begin(nlohmann::ordered_json config, std::int64_t step);
  /// Call it at the end. `state` is "done", "stopped", or the error; `result` is the result for machines.
  void finish(const std::string& state, const nlohmann::ordered_json& result);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::cli
