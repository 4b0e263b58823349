#pragma once

/// `inspect --calibration`: ranges, methods and histograms of a calibration.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fakequant/cli/calibration.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/quantization.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

struct InspectOptions {
  std::string file;  ///< any file that fakequant reads or writes
  bool reports_calibration = false;
  std::string state;       ///< file of calibrate --state, for a checkpoint
  std::string html, plan;  ///< page to write, and plan to show on it
  DataOptions data = {.split = "train"};
  QuantizationOptions quantization = {.command = "inspect"};  ///< for a float checkpoint
  CalibrationOptions calibration;
  GeneralOptions general;
};

/// Adds --calibration and the flags that need it.
void add_inspect_calibration_flags(FlagSet& set, InspectOptions& options);

/// Reports the calibration of a state, or of a checkpoint with its own ranges, --state or --data. Prints a
/// table and writes --html.
nlohmann::ordered_json inspect_calibration(const InspectOptions& options, Output& output);

}  // namespace fq::cli
