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

/// Made by the first call of all ranks.
const detail::RunEnd& run_end() {
  static const detail::RunEnd end;
  return end;
}

std::shared_ptr<Communicator> start(double timeout, const std::vector<std::string>& arguments) {
  return unlocked([&] {
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

std::shared_ptr<Communicator> ranks_of(nb::handle value) {
  if (value.is_none()) return nullptr;
  if (!nb::isinstance<Communicator>(value))
    throw ArgumentError("[ranks] ranks is none of fq.ranks(): give what that returns, or None");
  return nb::cast<std::shared_ptr<Communicator>>(value);
}

void check_same_call(Communicator* ranks, const char* function, Module& model, nlohmann::json settings) {
  if (ranks == nullptr) return;
  settings.update({{"call", function}, {"model", detail::fingerprint_of(model)}});
  detail::check_same_everywhere(*ranks, settings);
}

void bind_ranks(nb::module_& m) {
  nb::class_<Communicator>(m, "Ranks", "This process among those that mpiexec or Slurm started.")
      .def_prop_ro("rank", &Communicator::rank, "From 0.")
      .def_prop_ro("count", &Communicator::size)
      .def_prop_ro(
          "host", [](const Communicator&) { return host_name(); }, "The name of this machine.")
      .def_prop_ro("bytes", &Communicator::bytes, "What this rank has given to the others so far.")
      .def("__repr__", [](const Communicator& self) {
        return fmt::format("rank {} of {} on {}", self.rank(), self.size(), host_name());
      });
  m.def("started_ranks", &start, arg("timeout"), arg("arguments"));
  m.def("end_ranks", &meet, arg("status"), arg("message"),
        "(whether this process tells of the failure, the message, whether it is to end the others).");
  m.def("abort_ranks", &abort_ranks, arg("status"));
}

}  // namespace fq::python
