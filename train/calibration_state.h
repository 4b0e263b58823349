#pragma once

/// What the calibrators of a model have collected, in a file (docs/formats.md): to go on another day, or to
/// put together what several processes collected on shares of the data.

#include <cstdint>
#include <string>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/module.h"

namespace fq {

/// Of activations; ranges of weights are read from the weights. Attributes `samples` (images seen, for
/// whoever reads the file) and `parameters` (checksums of the model's), `quantizers/<name>/..`.
[[nodiscard]] StateDict calibration_state(Module& model, std::int64_t samples = 0);

/// Replaces what is collected by a state, or adds it, and returns its samples. Both halves of the data merged
/// are one run over it, bit by bit, for `max` and histograms that are filled in one pass. `path` is for
/// messages. Throws FileError naming the parameter or quantizer: a state of another model, one collected by
/// another method or with other axes or blocks, one that lacks a quantizer without a range, one that cannot
/// be added to; then nothing changed.
std::int64_t load_calibration_state(Module& model, const StateDict& state, const std::string& path);
std::int64_t merge_calibration_state(Module& model, const StateDict& state, const std::string& path);

/// The same with a file. Written atomically.
void save_calibration(Module& model, const std::string& path, std::int64_t samples = 0);
std::int64_t load_calibration(Module& model, const std::string& path);
std::int64_t merge_calibration(Module& model, const std::string& path);

}  // namespace fq
