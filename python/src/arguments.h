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
/// Returns the data set of `value`: a data set, a pair of arrays (x, y), or x alone.
/// Throws ArgumentError for other values.
[[nodiscard]] std::shared_ptr<const Dataset> to_dataset(nb::handle value, const char* function);
/// Returns a loader of the batches in the order of the data, without shuffling. With `ranks`, the loader has
/// the share of this rank.
[[nodiscard]] std::shared_ptr<DataLoader> sequential_loader(nb::handle value, std::int64_t batch_size,
                                                            const char* function,
                                                            const Communicator* ranks = nullptr);
[[nodiscard]] std::shared_ptr<DataLoader> sequential_loader(std::shared_ptr<const Dataset> data,
                                                            std::int64_t batch_size,
                                                            const Communicator* ranks = nullptr);
/// Returns the cross entropy for data with a class for each token or pixel. Returns an empty Loss for data
/// with one class for each sample.
[[nodiscard]] Loss default_loss(const Dataset& data, double label_smoothing = 0);
/// Returns the additional metrics for data with a class for each token or pixel: accuracy, and for tokens
/// "bpc" (bits per character).
[[nodiscard]] std::vector<std::string> default_metrics(const Dataset& data);
/// Returns a dict {"loss", "accuracy", "count", "correct", and each metric}.
[[nodiscard]] nb::dict evaluation_dict(const Evaluation& found);

/// Returns the communicator of an argument `ranks`, null for None.
[[nodiscard]] std::shared_ptr<Communicator> to_communicator(nb::handle value);
/// Throws ArgumentError on all ranks unless each rank makes the same call: the same function and settings, on
/// a model with the same values. Does nothing if `ranks` is null.
void check_same_call(Communicator* ranks, const char* function, Module& model, nlohmann::json settings);

}  // namespace fq::python
