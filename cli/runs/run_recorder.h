#pragma once

/// RunRecorder: writes the files of a run directory while a training run goes on.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/tables/training_report.h"
#include "fakequant/cli/training.h"
#include "fakequant/core/profile.h"
#include "fakequant/report/detail/runs/run_page.h"

namespace fq::cli {

/// So many samples tell which classes a network takes for which.
constexpr std::int64_t kMostExamined = 1000;

/// What a recorder looks at beside what the Trainer tells it.
struct RecordedRun {
  const Run* run = nullptr;
  std::vector<std::int64_t> rows = {};  ///< of the data, validation if there is some; none without classes
  std::string of = {};                  ///< "validation", "training"
  std::int64_t batch = 64;              ///< samples at once
};

class RunRecorder {
 public:
  RunRecorder(RunFolder folder, const Flags& flags, RecordedRun recorded, TrainingReport& report);
  ~RunRecorder();
  RunRecorder(const RunRecorder&) = delete;  // callbacks refer to it
  RunRecorder& operator=(const RunRecorder&) = delete;

  /// The report's own callbacks, and after them what is written.
  [[nodiscard]] TrainerCallbacks callbacks();
  /// Before the first step, or the first of a run that is gone on with at `step`: writes config.json, and
  /// leaves out of the record what was told of later steps.
  void begin(nlohmann::ordered_json config, std::int64_t step);
  /// At the end: "done", "stopped", or why it failed; `result` is what the command tells machines.
  void finish(const std::string& state, const nlohmann::ordered_json& result);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::cli
