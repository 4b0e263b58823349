#pragma once

/// The flags of every command.

#include "fakequant/cli/flags/flags.h"
#include "fakequant/core/device.h"

namespace fq::cli {

/// Flags of every command.
struct GeneralOptions {
  bool help = false, json = false, force = false, quiet = false;
  std::string device = "cpu";                ///< cpu, cuda, cuda:N or auto
  std::optional<std::int64_t> threads = {};  ///< at least 1; empty: OMP_NUM_THREADS or all cores
};

/// Adds --device to the current group. `add_general_flags` then omits it.
void add_device_flag(FlagSet& set, GeneralOptions& options);
/// Adds the group "General". Call it last: it adds --force and --quiet only to commands that write files.
void add_general_flags(FlagSet& set, GeneralOptions& options);
/// Returns the device of --device, or the GPU of this process if several ranks run on one machine. Throws
/// ArgumentError for an unknown name.
[[nodiscard]] Device chosen_device(const GeneralOptions& options, std::string_view command);

/// Throws the errors of `apply_general_flags`.
void check_general_flags(const Flags& flags);
/// Sets the number of threads by --threads. Throws BackendError if the device of --device cannot be used.
void apply_general_flags(const Flags& flags);

}  // namespace fq::cli
