#pragma once

/// Checkpoints: a model, and optionally the state of its training run, in one HDF5 file
/// (core/io/state_dict.h).
///
/// A checkpoint has the attribute `model` (JSON from the caller, enough to build the model) and the datasets
/// `parameters/<name>`, `buffers/<name>` and `quantizers/<name>/..`. A training run adds `optimizer/..`,
/// `average/..` and `progress/..`.
///
///     save_checkpoint("net.h5", model_state(model));
///     load_model_state(model, load_checkpoint("net.h5"), "net.h5");
///
/// The file holds values, not code. Before loading, build and quantize a model in the same way as the saved
/// model.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fakequant/core/io/state_dict.h"

namespace fq {

class Module;

/// Returns `parameters/`, `buffers/` and `quantizers/` of a model. Tensors are shared with the model, not
/// copied: save the state before training continues.
[[nodiscard]] StateDict model_state(Module& model);
/// Returns that state with `description` as attribute `model`, unless it is null.
[[nodiscard]] StateDict model_state(Module& model, const nlohmann::json& description);

/// Copies the values of a checkpoint into a model of the same structure. `path` is for messages. Weights of
/// quantized layers become floats or codes (layers/quantizer/compress.h), the same as in the checkpoint.
/// Throws FileError naming the first parameter, buffer or quantizer that differs, a weight with invalid
/// codes, and a parameter or buffer with NaN or infinity. Then nothing has changed.
void load_model_state(Module& model, const StateDict& state, const std::string& path);

/// Writes the file completely or not at all. Throws as `save_state` does, and NumericError naming the first
/// tensor with NaN or infinity. Then an existing file at `path` stays.
void save_checkpoint(const std::string& path, const StateDict& state);
/// Reads a checkpoint of this version or an older one, to the CPU. Throws FileError if the file is missing,
/// damaged, of a newer version or not a checkpoint.
[[nodiscard]] StateDict load_checkpoint(const std::string& path);
/// Returns whether the checkpoint has a run that Trainer::resume can continue, not a model only.
[[nodiscard]] bool has_training_state(const StateDict& state);

/// Returns the path of a file next to a checkpoint: "run.h5" and ".profile.json" give "run.profile.json".
/// Only the extension ".h5" is removed: "run.1" gives "run.1.profile.json".
[[nodiscard]] std::string sibling_path(const std::string& path, const std::string& extension);
/// Returns the path of the best epoch of a run. "run.h5" gives "run.best.h5". In a run directory,
/// "RUN/checkpoints/last.h5" gives "RUN/checkpoints/best.h5".
[[nodiscard]] std::string best_checkpoint_path(const std::string& path);
/// Returns whether files next to `path` are possible: false for a device or pipe, for example /dev/null.
[[nodiscard]] bool allows_sibling_files(const std::string& path);

}  // namespace fq
