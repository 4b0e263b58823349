#pragma once

/// Position, length and speed of a run.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/loop/detail/run_inputs.h"
#include "fakequant/train/ranks/detail/shared_step.h"
#include "fakequant/train/schedule.h"

namespace fq::detail {

/// Position of a run. Checkpoints hold all of it.
struct RunPosition {
  std::int64_t epoch = 0;  ///< finished epochs, with their validation
  std::int64_t step = 0;   ///< finished steps
  std::int64_t batch = 0;  ///< batches trained on
  std::uint64_t seed = 0;
  double loss_sum = 0;                  ///< sum of the losses of this epoch over its samples
  std::int64_t correct = 0, count = 0;  ///< correct and seen samples of this epoch

  [[nodiscard]] double mean_loss() const { return count == 0 ? 0 : loss_sum / static_cast<double>(count); }
  [[nodiscard]] double accuracy() const {
    return count == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(count);
  }
};

/// Counts epochs, steps and batches, and gives each step its learning rate.
class RunProgress {
 public:
  explicit RunProgress(const RunInputs& inputs);

  [[nodiscard]] const RunPosition& position() const noexcept { return position_; }
  /// Returns the number of epochs that the run begins.
  [[nodiscard]] std::int64_t epochs() const;
  /// Returns whether the last step and the validation after it are done.
  [[nodiscard]] bool finished() const;
  /// Returns whether the run ends here, within an epoch.
  [[nodiscard]] bool ends_within_epoch() const;
  /// Returns the learning rate that the schedule multiplies.
  [[nodiscard]] double base_rate() const;
  /// Returns the learning rate of the next step.
  [[nodiscard]] double learning_rate() const;

  /// Counts a batch of this rank or another one.
  void add_batch(std::int64_t samples);
  /// Adds the result of a batch to the means of the epoch.
  void add_result(const SharedStep::BatchResult& result);
  void end_step();
  /// Begins the next epoch if the loader has.
  void end_epoch();
  /// Gives the score of a validation to the schedule `plateau`.
  void add_score(double score);

  /// Restarts the measurement of speed.
  void start_clock();
  void start_epoch_clock();
  void add_loading_time(double seconds) { loading_ += seconds; }
  /// Returns the seconds since `start_clock`.
  [[nodiscard]] double seconds() const;
  [[nodiscard]] StepReport report(double learning_rate) const;
  /// Returns the position for messages: " (step 3, epoch 1)".
  [[nodiscard]] std::string place() const;

  /// Adds group `progress` to a checkpoint.
  void save(StateDict& checkpoint) const;
  /// Returns the position in group `progress` of the checkpoint `path`. Throws FileError for a position that
  /// no run over this data reaches.
  [[nodiscard]] RunPosition read(const StateDict& progress, const std::string& path) const;
  /// Continues at a position that `read` returned, with the rest of group `progress`.
  void load(const RunPosition& position, const StateDict& progress);

 private:
  using Clock = std::chrono::steady_clock;

  const RunInputs& inputs_;
  Schedule schedule_;
  std::optional<Plateau> plateau_;
  RunPosition position_;
  Clock::time_point start_ = Clock::now(), epoch_start_ = start_;
  std::int64_t timed_steps_ = 0;    // since start_
  std::int64_t timed_samples_ = 0;  // since epoch_start_
  double loading_ = 0;              // seconds since epoch_start_
};

}  // namespace fq::detail
