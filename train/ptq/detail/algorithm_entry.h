#pragma once

/// The algorithms behind the names of layers/config/detail/weight_algorithms.def: each one's source defines
/// its entry.

#include <vector>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_options.h"

namespace fq::ptq {

/// Of an algorithm, around calibration; the model lies on the CPU.
using AlgorithmStep = Report (*)(Module& model, DataLoader& data, const AlgorithmOptions& options);

struct AlgorithmEntry {
  std::vector<AlgorithmOption> options = {};
  AlgorithmStep before = nullptr;  ///< calibration; null: nothing is done there
  AlgorithmStep after = nullptr;
};

#define FQ_WEIGHT_ALGORITHM(name) [[nodiscard]] AlgorithmEntry name##_entry();
#include "fakequant/layers/config/detail/weight_algorithms.def"

}  // namespace fq::ptq
