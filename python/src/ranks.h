#pragma once

/// The processes that share out a call of Python.

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "array.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {
class Module;
}

namespace fq::python {

/// Of an argument `ranks`: null for None.
[[nodiscard]] std::shared_ptr<Communicator> ranks_of(nb::handle value);
/// Throws ArgumentError on all of them unless each makes this call: of that name and settings, on a model of
/// the same values. Nothing without ranks.
void check_same_call(Communicator* ranks, const char* function, Module& model, nlohmann::json settings);

}  // namespace fq::python
