#pragma once

/// Learning rate schedules: pure functions of the step.
///
///     const Schedule factor = schedule::warm_up(500, schedule::cosine(total - 500));
///     optimizer.set_learning_rate(1e-3 * factor(step));

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fq {

/// The factor of the learning rate at a step, counted from 0. Depends on nothing else, so that a resumed run
/// needs only the step.
using Schedule = std::function<double(std::int64_t step)>;

namespace schedule {

/// The same factor at every step.
[[nodiscard]] Schedule constant(double factor = 1);
/// gamma^(step / every), rounded down: torch's StepLR. Throws ArgumentError unless every >= 1 and gamma >= 0.
[[nodiscard]] Schedule step(std::int64_t every, double gamma = 0.1);
/// From 1 to `last` along half a cosine, there at step `total` and after: torch's CosineAnnealingLR, closed
/// form. Throws ArgumentError unless total >= 1.
[[nodiscard]] Schedule cosine(std::int64_t total, double last = 0);
/// Linearly from `first` to 1 in `steps` steps, then `after`, whose step 0 is step `steps`.
/// Throws ArgumentError for negative values.
[[nodiscard]] Schedule warm_up(std::int64_t steps, Schedule after, double first = 0);
/// Up and down along half cosines: torch's OneCycleLR. From 1 / div up to 1 at step fraction * total - 1,
/// then down to 1 / (div * final_div) at step total - 1 and after. Throws ArgumentError unless total >= 1, 0
/// <= fraction <= 1 and the divisors are at least 1.
[[nodiscard]] Schedule one_cycle(std::int64_t total, double fraction = 0.3, double div = 25,
                                 double final_div = 1e4);
/// One after another: each for so many steps, counting its own steps from 0; the last one has no end.
/// Throws ArgumentError for an empty list and negative lengths.
[[nodiscard]] Schedule sequence(std::vector<std::pair<std::int64_t, Schedule>> parts);
/// The product of both factors at each step.
[[nodiscard]] Schedule product(Schedule a, Schedule b);

}  // namespace schedule

/// A schedule by name, for options and files.
struct ScheduleOptions {
  std::string kind = "constant";     ///< "constant", "step", "cosine" or "one_cycle"
  std::int64_t warm_up = 0;          ///< steps, before the schedule (which then is that much shorter)
  std::int64_t step_every = 0;       ///< of "step": steps; 0 for a third of the run
  double step_factor = 0.1;          ///< of "step"
  double last = 0;                   ///< of "cosine": the factor at the end
  double rise = 0.3;                 ///< of "one_cycle": the fraction of the run that the rate rises
  double div = 25, final_div = 1e4;  ///< of "one_cycle"
};

/// For a run of `total` steps. Throws ArgumentError for an unknown kind, naming the nearest.
[[nodiscard]] Schedule make_schedule(const ScheduleOptions& options, std::int64_t total);

}  // namespace fq
