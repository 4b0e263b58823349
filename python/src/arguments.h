#pragma once

/// Arguments of calls from Python: configs, data sets and ranks.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "array.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/losses.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::python {

/// Returns a quantization config as text. A dict becomes JSON text; a string is unchanged.
[[nodiscard]] std::string config_text(nb::handle config);
/// A data set, a pair of arrays (x, y), or x alone. Throws ArgumentError naming what does not fit.
[[nodiscard]] std::shared_ptr<const Dataset> data_of(nb::handle value, const char* function);
/// Its batches, in order; with ranks this one's.
[[nodiscard]] std::shared_ptr<DataLoader> in_order(nb::handle value, std::int64_t batch_size,
                                                   const char* function, const Communicator* ranks = nullptr);
[[nodiscard]] std::shared_ptr<DataLoader> in_order(std::shared_ptr<const Dataset> data,
                                                   std::int64_t batch_size,
                                                   const Communicator* ranks = nullptr);
/// Cross entropy of data with a class for each token or pixel; none of its own for one class a sample.
[[nodiscard]] Loss loss_for(const Dataset& data, double label_smoothing = 0);
/// What is told of them beside: the accuracy of parts, and bits a character of tokens.
[[nodiscard]] std::vector<std::string> metrics_for(const Dataset& data);
/// {"loss", "accuracy", "count", "correct", and each metric}.
[[nodiscard]] nb::dict evaluation_of(const Evaluation& found);

/// Of an argument `ranks`: null for None.
[[nodiscard]] std::shared_ptr<Communicator> ranks_of(nb::handle value);
/// Throws ArgumentError on all of them unless each makes this call: of that name and settings, on a model of
/// the same values. Nothing without ranks.
void check_same_call(Communicator* ranks, const char* function, Module& model, nlohmann::json settings);

}  // namespace fq::python
