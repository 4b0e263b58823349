#pragma once

/// The commands, and how one is run.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/flags/phase_checks.h"
#include "fakequant/cli/system/signals.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

/// One command: its flags, and what it does with them.
struct Command {
  std::string_view name;
  std::string_view summary;
  FlagSet (*flags)();
  /// Prints what people read and returns what machines read; throws on failure.
  nlohmann::ordered_json (*run)(const Flags& flags, Output& output);
  /// See phase_checks.h; null for a command that is no phase.
  void (*check)(const Flags& flags, PlannedFiles& planned);
  /// The commands of two words that begin with this one, named by both: it has then nothing else.
  const std::vector<Command>& (*parts)() = nullptr;
};

/// Runs it, when its files are in order (file_checks.h): no other way leads to `run`.
nlohmann::ordered_json run_checked(const Command& command, const FlagSet& set, const Flags& flags,
                                   Output& output);

/// In the order of the help.
[[nodiscard]] const std::vector<Command>& commands();
/// Throws ArgumentError naming the nearest.
[[nodiscard]] const Command& find_command(std::string_view name);
/// The one of `parts` whose second word that is. Throws likewise.
[[nodiscard]] const Command& find_part(const Command& command, const std::string& word);

/// Thrown by a command that stopped because of a signal (signals.h); exit status 128 + its number, 130 after
/// Ctrl-C.
class Interrupted : public std::runtime_error {
 public:
  /// "[train] stopped by SIGTERM in epoch 3", `rest` being what follows the signal.
  explicit Interrupted(std::string_view command, std::string_view rest = {});
};

/// Thrown by a command whose result is that a check failed: the result is printed first; exit status 1.
class FailedCheck : public std::runtime_error {
 public:
  FailedCheck(const std::string& message, nlohmann::ordered_json result);

  [[nodiscard]] const nlohmann::ordered_json& result() const noexcept { return *result_; }

 private:
  std::shared_ptr<const nlohmann::ordered_json> result_;
};

FlagSet train_flags();
nlohmann::ordered_json train(const Flags& flags, Output& output);
FlagSet import_flags();
nlohmann::ordered_json import_model(const Flags& flags, Output& output);
FlagSet fold_flags();
nlohmann::ordered_json fold(const Flags& flags, Output& output);
FlagSet calibrate_flags();
nlohmann::ordered_json calibrate(const Flags& flags, Output& output);
FlagSet sensitivity_flags();
nlohmann::ordered_json measure_sensitivity(const Flags& flags, Output& output);
FlagSet qat_flags();
nlohmann::ordered_json qat(const Flags& flags, Output& output);
FlagSet evaluate_flags();
nlohmann::ordered_json evaluate(const Flags& flags, Output& output);
FlagSet predict_flags();
nlohmann::ordered_json predict(const Flags& flags, Output& output);
FlagSet generate_flags();
nlohmann::ordered_json generate_text(const Flags& flags, Output& output);
FlagSet compress_flags();
nlohmann::ordered_json compress_weights(const Flags& flags, Output& output);
FlagSet export_flags();
nlohmann::ordered_json export_network(const Flags& flags, Output& output);
FlagSet verify_flags();
nlohmann::ordered_json verify(const Flags& flags, Output& output);
FlagSet inspect_flags();
nlohmann::ordered_json inspect(const Flags& flags, Output& output);
const std::vector<Command>& dataset_commands();
FlagSet compare_flags();
nlohmann::ordered_json compare(const Flags& flags, Output& output);
FlagSet doctor_flags();
nlohmann::ordered_json doctor(const Flags& flags, Output& output);
FlagSet run_flags();
nlohmann::ordered_json run_recipe(const Flags& flags, Output& output);

}  // namespace fq::cli
