#include "fakequant/train/ranks/detail/mpi/functions.h"

#include <array>
#include <csignal>
#include <cstddef>

#include <dlfcn.h>
#include <fmt/format.h>

#include "fakequant/core/error.h"

namespace fq::mpi {
namespace {

constexpr const char* kModule = "libfakequant_mpi.so";

/// Restores signal handlers after MPI is loaded: UCX, a part of Open MPI 5, replaces the handler of SIGHUP.
class KeptSignals {
 public:
  KeptSignals() {
    for (std::size_t i = 0; i < kEnds.size(); ++i) sigaction(kEnds[i], nullptr, &actions_[i]);
  }
  ~KeptSignals() {
    for (std::size_t i = 0; i < kEnds.size(); ++i) sigaction(kEnds[i], &actions_[i], nullptr);
  }
  KeptSignals(const KeptSignals&) = delete;  // tied to its block
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static constexpr std::array kEnds{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kEnds.size()> actions_{};
};

/// Loads the module with global symbols, because plugins of Open MPI need them.
const Functions& load() {
  const KeptSignals signals;
  void* module = dlopen(kModule, RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr)
    throw BackendError(fmt::format(
        "[ranks] MPI cannot be loaded: {}; install fakequant-mpi and its MPI (openmpi-bin on Debian), or put "
        "the folder of {} in LD_LIBRARY_PATH",
        dlerror(), kModule));
  if (const void* found = dlsym(module, kFunctions); found != nullptr)
    return *static_cast<const Functions*>(found);
  throw BackendError(
      fmt::format("[ranks] {} is of another version: install a matching version, or remove its folder from "
                  "LD_LIBRARY_PATH",
                  kModule));
}

}  // namespace

const Functions& functions() {
  // Loaded once, thread-safe. A failure throws and is tried again by the next call.
  static const Functions& loaded = load();
  return loaded;
}

}  // namespace fq::mpi
