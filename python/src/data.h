#pragma once

/// Data of Python as batches.

#include <cstdint>
#include <memory>

#include "array.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/loop/evaluate.h"

namespace fq::python {

/// A data set, a pair of arrays (x, y), or x alone. Throws ArgumentError naming what does not fit.
[[nodiscard]] std::shared_ptr<const Dataset> data_of(nb::handle value, const char* function);
/// Its batches, in order.
[[nodiscard]] std::shared_ptr<DataLoader> in_order(nb::handle value, std::int64_t batch_size,
                                                   const char* function);
[[nodiscard]] std::shared_ptr<DataLoader> in_order(std::shared_ptr<const Dataset> data,
                                                   std::int64_t batch_size);
/// {"loss", "accuracy", "count", "correct", and each metric}.
[[nodiscard]] nb::dict evaluation_of(const Evaluation& found);

}  // namespace fq::python
