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

/// UCX, which Open MPI 5 brings, takes SIGHUP when it is loaded.
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

/// For all to see, as plugins of Open MPI want its symbols.
const Functions& load() {
  const KeptSignals kept;
  void* module = dlopen(kModule, RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr)
    throw BackendError(fmt::format(
        "[ranks] MPI cannot be loaded: {}; install fakequant-mpi and its MPI (openmpi-bin on Debian), or put "
        "the folder of {} in LD_LIBRARY_PATH",
        dlerror(), kModule));
  if (const void* found = dlsym(module, kFunctions); found != nullptr)
    return *static_cast<const Functions*>(found);
  throw BackendError(
      fmt::format("[ranks] {} is of another version: install that of this one, or take its folder out of "
                  "LD_LIBRARY_PATH",
                  kModule));
}

}  // namespace

const Functions& functions() {
  static const Functions& loaded = load();
  return loaded;
}

}  // namespace fq::mpi
