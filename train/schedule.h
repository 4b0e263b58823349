#pragma once

/// Learning rate schedules: pure functions of the step.
///
///     const Schedule factor = schedule::warm_up(500, schedule::cosine(total - 500));
///     optimizer.set_learning_rate(1e-3 * factor(step));
///
/// Schedules return factors of the learning rate, so that one schedule works with any rate. A step is a step
/// of the optimizer, counted from 0.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/io/state_dict.h"

namespace fq {

/// Function that returns the factor of the learning rate at a step. It depends on the step only: a resumed
/// run needs no other state.
using Schedule = std::function<double(std::int64_t step)>;

namespace schedule {

/// Returns a schedule with the same factor at every step.
[[nodiscard]] Schedule constant(double factor = 1);
/// Returns gamma^(step / every), with the quotient rounded down: torch's StepLR. Throws ArgumentError unless
/// every >= 1 and gamma >= 0.
[[nodiscard]] Schedule step(std::int64_t every, double gamma = 0.1);
/// Falls from 1 to `last` along half a cosine, and stays there from step `total`: torch's CosineAnnealingLR
/// in closed form. Throws ArgumentError unless total >= 1.
[[nodiscard]] Schedule cosine(std::int64_t total, double last = 0);
/// Rises linearly from `first` to 1 in `steps` steps. Then follows `after`, whose step 0 is step `steps`.
/// Throws ArgumentError for negative values.
[[nodiscard]] Schedule warm_up(std::int64_t steps, Schedule after, double first = 0);
/// Rises and falls along half cosines: torch's OneCycleLR. The factor rises from 1 / div to 1 at step
/// fraction * total - 1. It falls to 1 / (div * final_div) at step total - 1, and stays there. Throws
/// ArgumentError unless total >= 1, 0 <= fraction <= 1 and the divisors are at least 1.
[[nodiscard]] Schedule one_cycle(std::int64_t total, double fraction = 0.3, double div = 25,
                                 double final_div = 1e4);
/// Returns gamma^k, where k is the number of milestones reached: torch's MultiStepLR. Throws ArgumentError
/// unless milestones are ascending and 0 or more, and gamma >= 0.
[[nodiscard]] Schedule multi_step(std::vector<std::int64_t> milestones, double gamma = 0.1);
/// Returns last + (1 - last) * (1 - step / total)^power, and `last` from step `total`: torch's PolynomialLR
/// if last is 0. Throws ArgumentError unless total >= 1 and power > 0.
[[nodiscard]] Schedule polynomial(std::int64_t total, double power = 1, double last = 0);
/// Repeats half a cosine from 1 to `last`. The first one takes `period` steps, each next one `grow` times as
/// many: torch's CosineAnnealingWarmRestarts. Throws ArgumentError unless period >= 1 and grow >= 1.
[[nodiscard]] Schedule restarts(std::int64_t period, std::int64_t grow = 1, double last = 0);
/// Runs schedules one after another. Each has a number of steps and counts its own steps from 0; the last one
/// has no end. Throws ArgumentError for an empty list and negative lengths.
[[nodiscard]] Schedule sequence(std::vector<std::pair<std::int64_t, Schedule>> parts);
/// Returns the product of both factors at each step.
[[nodiscard]] Schedule product(Schedule a, Schedule b);

}  // namespace schedule

/// Learning rate factor that falls if the score stops improving: torch's ReduceLROnPlateau, with its
/// threshold of 1e-4 of the best score so far. Update it after each evaluation:
///
///     optimizer.set_learning_rate(1e-3 * plateau.update(evaluate(model, validation).score));
class Plateau {
 public:
  /// Multiplies the factor by `by` after more than `patience` scores in a row without improvement. Throws
  /// ArgumentError unless 0 < by < 1 and patience >= 0.
  explicit Plateau(double by = 0.1, std::int64_t patience = 10);

  /// Adds a score, where larger is better, and returns the new factor. NaN is no improvement.
  double update(double score);
  /// Returns the current factor, 1 at first.
  [[nodiscard]] double factor() const noexcept { return factor_; }

  /// Returns the state for a resumed run: attributes `best`, `factor`, `waited`, `started`.
  [[nodiscard]] StateDict state_dict() const;
  /// Sets the state. Throws ArgumentError for a state without these attributes.
  void load_state(const StateDict& state);

 private:
  double by_;
  std::int64_t patience_, waited_ = 0;
  double factor_ = 1, best_ = 0;
  bool started_ = false;
};

/// Options of a schedule that is selected by name, for options and files. Lengths are in optimizer steps. A
/// length of 0 is derived from the length of the run.
struct ScheduleOptions {
  /// "constant", "step", "multi_step", "cosine", "restarts", "polynomial", "one_cycle", or "plateau", which
  /// the Trainer updates after each validation.
  std::string kind = "constant";
  std::int64_t warm_up = 0;     ///< steps of warm-up before the schedule, which is shorter by them
  std::int64_t step_every = 0;  ///< interval of "step" in steps; 0 for a third of the run
  /// Steps of "multi_step"; empty for half and three quarters of the run.
  std::vector<std::int64_t> milestones = {};
  double step_factor = 0.1;   ///< factor of "step", "multi_step" and "plateau"
  std::int64_t patience = 2;  ///< patience of "plateau" in epochs
  double last = 0;            ///< factor at the end of "cosine", "restarts" and "polynomial"
  /// First period of "restarts" in steps, 0 for a tenth of the run, and its growth.
  std::int64_t period = 0, grow = 1;
  double power = 1;                  ///< exponent of "polynomial"
  double rise = 0.3;                 ///< fraction of the run with a rising rate, for "one_cycle"
  double div = 25, final_div = 1e4;  ///< divisors of "one_cycle"
};

/// Returns the allowed values of ScheduleOptions::kind.
[[nodiscard]] const std::vector<std::string>& schedule_kinds();
/// Returns the schedule for a run of `total` steps. For "plateau", the factor is constant after the warm-up:
/// multiply it by the factor of a Plateau. Throws ArgumentError for an unknown kind, with a suggestion, and
/// for options that the functions above reject.
[[nodiscard]] Schedule make_schedule(const ScheduleOptions& options, std::int64_t total);

}  // namespace fq
