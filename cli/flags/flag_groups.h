#pragma once

/// The flags of every command.

#include "fakequant/cli/flags/flags.h"
#include "fakequant/core/device.h"

namespace fq::cli {

/// Flags of every command.
struct GeneralOptions {
  bool help = false, json = false, force = false, quiet = false;
  std::string device = "cpu";                ///< cpu, cuda, cuda:N or auto
  std::optional<std::int64_t> threads = {};  ///< 1 or more; without, OMP_NUM_THREADS or every core
};

/// Adds --device to the current group. `add_general_flags` then leaves it out.
void add_device_flag(FlagSet& set, GeneralOptions& options);
/// Adds the group "General". It comes last, because --force and --quiet are for commands that write files.
void add_general_flags(FlagSet& set, GeneralOptions& options);
/// Returns the device of --device, or this process's own GPU if ranks share a machine. Throws ArgumentError
/// for an unknown name.
[[nodiscard]] Device chosen_device(const GeneralOptions& options, std::string_view command);

/// Throws what `apply_general_flags` would throw.
void check_general_flags(const Flags& flags);
/// Sets the number of threads by --threads. Throws BackendError if the device of --device cannot be used.
void apply_general_flags(const Flags& flags);

}  // namespace fq::cli
