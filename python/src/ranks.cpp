#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "bindings.h"
#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/error.h"
#include "fakequant/train/ranks/detail/collectives.h"
#include "fakequant/train/ranks/detail/run_end.h"
#include "graded.h"

namespace fq::python {
namespace {

using nb::arg;

/// Returns the end of the run. The first call of all ranks creates it.
/// All ranks must create it before their work, so it is not made when the module is imported.
const detail::RunEnd& run_end() {
  static const detail::RunEnd end;
  return end;
}

std::shared_ptr<Communicator> start(double timeout, const std::vector<std::string>& arguments) {
  return unlocked([&] {
    // Other versions or engines may give other bits. Found here, this is an error instead of a wrong sum.
    detail::check_same_everywhere(run_end().ranks(),
                                  {{"version", FAKEQUANT_VERSION},
                                   {"codes multiplied as", cpu::name(cpu::best_exact_type())},
                                   {"arguments", arguments}});
    return started_ranks(timeout);
  });
}

nb::tuple meet(int status, const std::string& message) {
  const auto last = unlocked([&] { return run_end().meet(status, message); });
  return nb::make_tuple(last.speaks, last.message, last.abort);
}

}  // namespace

std::shared_ptr<Communicator> to_communicator(nb::handle value) {
  if (value.is_none()) return nullptr;
  if (!nb::isinstance<Communicator>(value))
    throw ArgumentError("[ranks] ranks is not the result of fq.ranks(): use fq.ranks() or None");
  return nb::cast<std::shared_ptr<Communicator>>(value);
}

void check_same_call(Communicator* ranks, const char* function, Module& model, nlohmann::json settings) {
  if (ranks == nullptr) return;
  // The fingerprint of the model shows ranks that loaded different weights.
  settings.update({{"call", function}, {"model", detail::model_fingerprint(model)}});
  detail::check_same_everywhere(*ranks, settings);
}

void bind_ranks(nb::module_& m) {
  nb::class_<Communicator>(m, "Ranks", "This process in a run that mpiexec or Slurm started.")
      .def_prop_ro("rank", &Communicator::rank, "Number of this process, from 0.")
      .def_prop_ro("count", &Communicator::size, "Number of processes.")
      .def_prop_ro(
          "host", [](const Communicator&) { return host_name(); }, "Name of this machine.")
      .def_prop_ro("bytes", &Communicator::bytes, "Number of bytes that this rank has sent to the others.")
      .def("__repr__", [](const Communicator& self) {
        return fmt::format("rank {} of {} on {}", self.rank(), self.size(), host_name());
      });
  m.def("started_ranks", &start, arg("timeout"), arg("arguments"),
        "Returns the ranks of the run. A call of the ranks waits at most `timeout` seconds. Raises "
        "ArgumentError if the processes have different arguments, and BackendError without MPI.");
  m.def("end_ranks", &meet, arg("status"), arg("message"),
        "Returns (whether this process reports the failure, the message, whether it must end the others).");
  m.def("abort_ranks", &abort_ranks, arg("status"), "Ends all processes of the run with an exit status.");
}

}  // namespace fq::python
