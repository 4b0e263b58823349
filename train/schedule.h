#pragma once

/// Learning rate schedules: pure functions of the step.
///
///     const Schedule factor = schedule::warm_up(500, schedule::cosine(total - 500));
///     optimizer.set_learning_rate(1e-3 * factor(step));
///
/// They give factors, not rates, so that one schedule serves any rate. Steps are those of the optimizer,
/// counted from 0.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/io/state_dict.h"

namespace fq {

/// The factor of the learning rate at a step. It depends on nothing else, so that a resumed run needs only
/// the step.
using Schedule = std::function<double(std::int64_t step)>;

namespace schedule {

/// The same factor at every step.
[[nodiscard]] Schedule constant(double factor = 1);
/// gamma^(step / every), the quotient rounded down: torch's StepLR. Throws ArgumentError unless every >= 1
/// and gamma >= 0.
[[nodiscard]] Schedule step(std::int64_t every, double gamma = 0.1);
/// From 1 to `last` along half a cosine, there at step `total` and after: torch's CosineAnnealingLR, closed
/// form. Throws ArgumentError unless total >= 1.
[[nodiscard]] Schedule cosine(std::int64_t total, double last = 0);
/// Linearly from `first` to 1 in `steps` steps, then `after`, whose step 0 is step `steps`. Throws
/// ArgumentError for negative values.
[[nodiscard]] Schedule warm_up(std::int64_t steps, Schedule after, double first = 0);
/// Up and down along half cosines: torch's OneCycleLR. From 1 / div up to 1 at step fraction * total - 1,
/// then down to 1 / (div * final_div) at step total - 1 and after. Throws ArgumentError unless total >= 1, 0
/// <= fraction <= 1 and the divisors are at least 1.
[[nodiscard]] Schedule one_cycle(std::int64_t total, double fraction = 0.3, double div = 25,
                                 double final_div = 1e4);
/// gamma^k, k the milestones that are reached: torch's MultiStepLR. Throws ArgumentError unless they are
/// ascending and 0 or more, and gamma >= 0.
[[nodiscard]] Schedule multi_step(std::vector<std::int64_t> milestones, double gamma = 0.1);
/// last + (1 - last) * (1 - step / total)^power, there at step `total` and after: torch's PolynomialLR where
/// last is 0. Throws ArgumentError unless total >= 1 and power > 0.
[[nodiscard]] Schedule polynomial(std::int64_t total, double power = 1, double last = 0);
/// Half a cosine from 1 to `last` in `period` steps, again and again, each `grow` times as long as the one
/// before: torch's CosineAnnealingWarmRestarts. Throws ArgumentError unless period >= 1 and grow >= 1.
[[nodiscard]] Schedule restarts(std::int64_t period, std::int64_t grow = 1, double last = 0);
/// One after another: each for so many steps, counting its own steps from 0; the last one has no end.
/// Throws ArgumentError for an empty list and negative lengths.
[[nodiscard]] Schedule sequence(std::vector<std::pair<std::int64_t, Schedule>> parts);
/// The product of both factors at each step.
[[nodiscard]] Schedule product(Schedule a, Schedule b);

}  // namespace schedule

/// The factor of a learning rate that falls when nothing gets better: torch's ReduceLROnPlateau, with its
/// threshold of 1e-4 of the best score so far. After each evaluation:
///
///     optimizer.set_learning_rate(1e-3 * plateau.update(evaluate(model, validation).score));
class Plateau {
 public:
  /// Multiplies the factor by `by` when more than `patience` scores in a row were no better. Throws
  /// ArgumentError unless 0 < by < 1 and patience >= 0.
  explicit Plateau(double by = 0.1, std::int64_t patience = 10);

  /// Takes a score in, the larger the better, and gives the factor from here on. A NaN is no better.
  double update(double score);
  /// The factor in force, 1 at first.
  [[nodiscard]] double factor() const noexcept { return factor_; }

  /// What a resumed run needs: attributes `best`, `factor`, `waited`, `started`.
  [[nodiscard]] StateDict state_dict() const;
  /// Takes it back. Throws ArgumentError for what is not such a state.
  void load_state(const StateDict& state);

 private:
  double by_;
  std::int64_t patience_, waited_ = 0;
  double factor_ = 1, best_ = 0;
  bool started_ = false;
};

/// A schedule by name, for options and files. Lengths are in steps of the optimizer; 0 makes them follow from
/// the length of the run.
struct ScheduleOptions {
  /// "constant", "step", "multi_step", "cosine", "restarts", "polynomial", "one_cycle", or "plateau", which
  /// the Trainer moves by its validation.
  std::string kind = "constant";
  std::int64_t warm_up = 0;     ///< steps, before the schedule (which then is that much shorter)
  std::int64_t step_every = 0;  ///< of "step": steps; 0 for a third of the run
  std::vector<std::int64_t> milestones = {};  ///< of "multi_step": steps; none for half and three quarters
  double step_factor = 0.1;                   ///< of "step", "multi_step" and "plateau"
  std::int64_t patience = 2;                  ///< of "plateau": epochs
  double last = 0;                    ///< of "cosine", "restarts" and "polynomial": the factor at the end
  std::int64_t period = 0, grow = 1;  ///< of "restarts": steps, 0 for a tenth of the run
  double power = 1;                   ///< of "polynomial"
  double rise = 0.3;                  ///< of "one_cycle": the fraction of the run that the rate rises
  double div = 25, final_div = 1e4;   ///< of "one_cycle"
};

/// The kinds that `make_schedule` knows.
[[nodiscard]] const std::vector<std::string>& schedule_kinds();
/// The schedule for a run of `total` steps; "plateau" gives what is constant behind the warm-up, for a
/// Plateau beside it. Throws ArgumentError for an unknown kind, naming the nearest, and as the functions
/// above.
[[nodiscard]] Schedule make_schedule(const ScheduleOptions& options, std::int64_t total);

}  // namespace fq
