#pragma once

/// Groups of flags that several commands share, and what they say.

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

void add_general_flags(FlagSet& set);                  ///< help, json, threads
void add_data_flags(FlagSet& set, const char* split);  ///< data, split (unless null), batch

/// Of --device. Throws ArgumentError for a name that is none.
[[nodiscard]] Device device_of(const Flags& flags);
/// Throws what `apply_general_flags` would throw.
void check_general_flags(const Flags& flags);
/// Sets the number of threads by --threads; throws BackendError when the device of --device cannot be used.
void apply_general_flags(const Flags& flags);

}  // namespace fq::cli
