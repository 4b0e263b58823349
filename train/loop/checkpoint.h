#pragma once

/// Checkpoints: a model, and what it takes to go on training it, in one HDF5 file (core/io/state_dict.h).
///
/// Attribute `model` (JSON: whatever the caller needs to build the model again), datasets
/// `parameters/<name>`, `buffers/<name>`, `quantizers/<name>/..`, and of a training run `optimizer/..`,
/// `average/..`, `progress/..`.
///
///     save_checkpoint("net.h5", model_state(model));
///     load_model_state(model, load_checkpoint("net.h5"), "net.h5");
///
/// A model is built and quantized as it was before its checkpoint is loaded into it; the file holds values,
/// not code.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fakequant/core/io/state_dict.h"

namespace fq {

class Module;

/// `parameters/`, `buffers/` and `quantizers/` of a model. Tensors are shared with the model, not copied:
/// save the state before training goes on.
[[nodiscard]] StateDict model_state(Module& model);
/// The same and, unless null, the attribute `model`.
[[nodiscard]] StateDict model_state(Module& model, const nlohmann::json& description);

/// Copies the values of a checkpoint into a model of the same structure. `path` is for messages. The weights
/// of quantized layers become floats or codes (layers/quantizer/compress.h), as they are in the checkpoint.
/// Throws FileError naming the first parameter, buffer or quantizer that differs, codes that are none of
/// their format, and parameters and buffers that hold NaN or infinity; then nothing was changed.
void load_model_state(Module& model, const StateDict& state, const std::string& path);

/// Writes the file as a whole or not at all. Throws as `save_state`, and NumericError naming the first tensor
/// that holds NaN or infinity: what is at `path` stays then.
void save_checkpoint(const std::string& path, const StateDict& state);
/// Reads a checkpoint of this version or an older one, to the CPU. Throws FileError when there is none, when
/// it is damaged, of a newer version, or not a checkpoint.
[[nodiscard]] StateDict load_checkpoint(const std::string& path);
/// Whether it holds a run that can be gone on with (Trainer::resume), not a model alone.
[[nodiscard]] bool has_training_state(const StateDict& state);

/// A file beside a checkpoint: "run.h5" and ".profile.json" give "run.profile.json". Only ".h5" is taken off:
/// "run.1" gives "run.1.profile.json".
[[nodiscard]] std::string beside_checkpoint(const std::string& path, const std::string& extension);
/// Where the best epoch of a run is kept: "run.h5" gives "run.best.h5", and "RUN/checkpoints/last.h5", of a
/// run directory, "RUN/checkpoints/best.h5".
[[nodiscard]] std::string best_checkpoint_path(const std::string& path);
/// Whether it is kept there: not beside a device or pipe, such as /dev/null.
[[nodiscard]] bool has_files_beside(const std::string& path);

}  // namespace fq
