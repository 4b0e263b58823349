#include "fakequant/cli/flags/flag_groups.h"

#include <algorithm>

#include "fakequant/cli/system/process.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::cli {

void add_device_flag(FlagSet& set, GeneralOptions& options) {
  set.value(options.device, "device", "NAME",
            "where to compute: cpu, cuda, cuda:N, or auto for the first GPU that can be used");
}

void add_general_flags(FlagSet& set, GeneralOptions& options) {
  const auto names = set.names();
  set.group("General")
      .toggle(options.help, "help,h", "print this text")
      .toggle(options.json, "json", "print one JSON object a line on standard output, for machines");
  // Commands that train show --device among their main flags.
  if (std::ranges::find(names, "device") == names.end()) add_device_flag(set, options);
  set.value(options.threads, "threads", "THREADS", {1, kMostThreads},
            "threads to compute on (default: OMP_NUM_THREADS, or every core)");
  if (set.writes())
    set.toggle(options.force, "force", "replace files of another kind, and run directories")
        .toggle(options.quiet, "quiet", "print nothing on standard output, with --json only the result");
}

Device chosen_device(const GeneralOptions& options, std::string_view command) {
  const Device given = Device::parse(options.device);
  // With several processes on one machine, rank i uses GPU i, and the number in --device has no effect.
  const Launched here = launched();
  if (here.ranks == 1 || !given.is_cuda()) return given;
  FQ_CHECK(here.ranks_here <= cuda_device_count(), command,
           "{} processes on this machine have {} GPUs. Start at most one for each, or leave out --device "
           "cuda",
           here.ranks_here, cuda_device_count());
  return Device::cuda(here.rank_here);
}

void check_general_flags(const Flags& flags) {
  if (!flags.knows("device")) return;
  static_cast<void>(describe(chosen_device({.device = flags.text("device")},
                                           flags.command())));  // throws for a GPU that cannot be used
  if (flags.given("threads")) static_cast<void>(flags.integer("threads", 1, kMostThreads));
}

void apply_general_flags(const Flags& flags) {
  check_general_flags(flags);
  if (flags.given("threads")) use_threads(int(flags.integer("threads", 1, kMostThreads)));
}

}  // namespace fq::cli
