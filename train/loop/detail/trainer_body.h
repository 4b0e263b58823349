#pragma once

/// The parts of a Trainer.

#include <chrono>
#include <nlohmann/json.hpp>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/loop/average.h"
#include "fakequant/train/loop/detail/passes.h"
#include "fakequant/train/loop/detail/range_guard.h"
#include "fakequant/train/loop/detail/switches.h"
#include "fakequant/train/loop/detail/teacher.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/loop/trainer.h"
#include "fakequant/train/ranks/detail/shared_step.h"

namespace fq {

using Clock = std::chrono::steady_clock;

[[nodiscard]] inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Where a run is: all of it is in the checkpoint.
struct Progress {
  std::int64_t epoch = 0;  ///< finished, with their validation
  std::int64_t step = 0;
  std::int64_t batch = 0;  ///< batches trained on
  std::uint64_t seed = 0;
  double loss_sum = 0;  ///< of this epoch, over samples
  std::int64_t correct = 0, count = 0;

  [[nodiscard]] double mean_loss() const { return count == 0 ? 0 : loss_sum / static_cast<double>(count); }
  [[nodiscard]] double accuracy() const {
    return count == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(count);
  }
  void next_epoch() {
    ++epoch;
    loss_sum = 0;
    correct = count = 0;
  }
};

/// What reports of speed are made of.
struct Pace {
  Clock::time_point start = Clock::now();
  std::int64_t steps = 0;
  Clock::time_point epoch_start = start;
  std::int64_t images = 0;  ///< of this epoch
  double loading = 0;       ///< seconds of this epoch

  void begin_epoch() {
    epoch_start = Clock::now();
    images = 0;
    loading = 0;
  }
};

struct Trainer::Body {
  std::shared_ptr<Module> model;
  std::shared_ptr<DataLoader> training, validation;
  TrainerOptions options;
  TrainerCallbacks callbacks;
  nlohmann::json description;
  std::unique_ptr<LowRankAdapters> adapters;  // null without
  std::unique_ptr<Optimizer> optimizer;
  std::optional<WeightAverage> average;
  std::optional<detail::SharedStep> shared;
  std::vector<Variable> parameters;
  EarlyStopping early;
  detail::Switches switches;
  detail::RangeGuard ranges;
  detail::Passes passes;
  std::optional<detail::Teacher> teacher;
  Schedule schedule;
  std::optional<Plateau> plateau;
  Progress progress;
  Pace pace;
  std::optional<Evaluation> start, last;
  std::optional<Progress> saved;                          // of what is at options.out, if it is of this run
  mutable std::optional<nlohmann::json> data_marks;       // made once
  std::optional<StateDict> best;                          // a copy, with restore_best
  std::int64_t waiting_batches = 0, waiting_samples = 0;  // accumulated since the last step
  bool asked_to_stop = false;                             // by any rank, known when a step ends

  // trainer_setup.cpp
  Body(std::shared_ptr<Module> network, std::shared_ptr<DataLoader> data, TrainerOptions chosen,
       std::shared_ptr<DataLoader> held_out, TrainerCallbacks hooks);

  // trainer.cpp
  /// True when it was stopped by the flag.
  bool train();
  /// Of batches that no step was made of, and of whoever had the model before.
  void forget_gradients();
  /// Before the first step, where that is asked for.
  void validate_start();
  [[nodiscard]] Evaluation validate();
  void train_epoch();
  [[nodiscard]] std::optional<Batch> next_batch();
  void reestimate();
  /// How the batches of the run are made, on this thread and by this process alone.
  [[nodiscard]] LoaderOptions whole_batches() const;
  /// False when its validation was stopped by the flag.
  bool finish_epoch();
  /// Of what one process may leave early; ranks stop together, at the end of a step.
  [[nodiscard]] const std::atomic<bool>* stop_flag() const { return shared ? nullptr : options.stop; }
  [[nodiscard]] bool stop_requested() const {
    return shared ? asked_to_stop : options.stop != nullptr && *options.stop;
  }
  [[nodiscard]] std::int64_t steps_per_epoch() const;
  [[nodiscard]] std::int64_t total_steps() const {
    return options.steps > 0 ? options.steps : options.epochs * steps_per_epoch();
  }
  /// The learning rate that the schedule is a share of.
  [[nodiscard]] double highest_rate() const;
  /// Those that the run begins.
  [[nodiscard]] std::int64_t epochs() const;
  /// Whether the last step is done, and what belongs to it.
  [[nodiscard]] bool finished() const;
  /// Whether the run ends here, within an epoch.
  [[nodiscard]] bool cut() const {
    return options.steps > 0 && progress.step == options.steps && progress.step % steps_per_epoch() != 0;
  }

  // trainer_step.cpp
  void train_batch(const Batch& batch);
  void train_shared(const Batch& batch);
  /// Of the step that the batch which was read last belongs to.
  [[nodiscard]] std::int64_t batches_of_step() const;
  /// What all ranks have to say of a step's batches.
  void gather_step();
  detail::SharedStep::Told forward_backward(const Batch& batch);
  /// Whether labels are shares of classes: the class of the largest share is taken for the right answer.
  [[nodiscard]] bool mixed_classes() const;
  [[nodiscard]] detail::Switches::Phase phase() const;
  /// Throws NumericError for NaN and infinity where the host can look at once.
  void check_gradients() const;
  void update_parameters();
  void step();
  void report_step() const;

  // trainer_state.cpp
  [[nodiscard]] StateDict state() const;
  [[nodiscard]] const nlohmann::json& fingerprints() const;
  void load(const StateDict& state, const std::string& path);
  void save(const std::string& path);
  void keep_best();
  void restore_best();

  // trainer_checks.cpp
  /// Model, ranges, averages and optimizer, by their names in checkpoints; shared, not copied.
  [[nodiscard]] std::vector<StateDict::Entry> numbers() const;
  /// Throws NumericError naming the first tensor of the run that holds NaN or infinity.
  void check_finite() const;
  /// Throws ArgumentError when settings or data are not those of the run whose `progress/` this is, naming
  /// them.
  void check_same_run(const StateDict& run, const std::string& path) const;
  /// Called by all ranks: throws ArgumentError unless settings, data and model are the same on all of them.
  void check_same_run_everywhere() const;
  /// Throws FileError for a place that no run over this data comes to.
  [[nodiscard]] Progress read_progress(const StateDict& run, const std::string& path) const;
  /// What was thrown while a batch was trained on: of the data where that has the NaN, with the place.
  [[nodiscard]] NumericError explained(const NumericError& error, const Batch& batch) const;
  /// " (step 3, epoch 1)".
  [[nodiscard]] std::string place() const;
  /// "; run.h5 is of epoch 2"; nothing for a run that writes no file.
  [[nodiscard]] std::string last_saved() const;
};

}  // namespace fq
