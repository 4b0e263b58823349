#pragma once

/// Checkpoints of a run: writing, resuming and the checks before both.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "fakequant/train/loop/detail/parameter_update.h"
#include "fakequant/train/loop/detail/validation.h"

namespace fq::detail {

/// Writes the state of all parts of a run, and sets it from a checkpoint.
class RunCheckpoint {
 public:
  /// `ranks` is null for one process.
  RunCheckpoint(const RunInputs& inputs, RunProgress& progress, ParameterUpdate& update,
                Validation& validation, Communicator* ranks);

  /// Computes the fingerprints of the data, which takes a pass over it. Throws ArgumentError unless all ranks
  /// have the same settings, data and model.
  void begin_run() const;

  /// Returns the state of the run. Tensors are shared, not copied.
  [[nodiscard]] StateDict state() const;
  /// Sets the state of the run (Trainer::resume).
  void load(const StateDict& checkpoint, const std::string& path);
  /// Writes the state to `out`, if there is one. Throws NumericError, before it writes, if the state is not
  /// finite.
  void save_checked();
  /// Writes the state to `out`, if there is one.
  void save_last();
  /// Keeps the state as the best of the run: in a file, and in memory with `restore_best`.
  void save_best();
  /// Sets the model to the best state.
  void restore_best();

  /// Throws NumericError naming the first tensor of the run that has NaN or infinity.
  void check_finite() const;
  /// Returns which state `out` has, for error messages: "; run.h5 is of the end of epoch 2". Empty without
  /// `out`.
  [[nodiscard]] std::string last_saved() const;

 private:
  void save(const std::string& path);
  [[nodiscard]] nlohmann::json settings() const;
  [[nodiscard]] const nlohmann::json& fingerprints() const;
  /// Throws ArgumentError naming each setting or data set that differs from the checkpoint.
  void check_same_run(const StateDict& progress, const std::string& path) const;
  /// Returns the tensors of the run by their names in checkpoints.
  [[nodiscard]] std::vector<StateDict::Entry> tensors() const;

  const RunInputs& inputs_;
  RunProgress& progress_;
  ParameterUpdate& update_;
  Validation& validation_;
  Communicator* ranks_;
  nlohmann::json description_;                          // description of the model
  mutable std::optional<nlohmann::json> fingerprints_;  // computed once
  std::optional<RunPosition> saved_;                    // position of the state at `out`
  std::optional<StateDict> best_;                       // copy of the best state, with restore_best
};

}  // namespace fq::detail
