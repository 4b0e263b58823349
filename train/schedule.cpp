#include "fakequant/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/train/detail/whole_number.h"

namespace fq {
namespace {

/// Returns the value of half a cosine from `from` at 0 to `to` at 1, flat at both ends.
double half_cosine(double from, double to, double at) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * at)) / 2;
}

// Relative improvement that torch's ReduceLROnPlateau requires by default.
constexpr double kThreshold = 1e-4;
constexpr std::string_view kPlateau = "plateau";

}  // namespace

namespace schedule {

Schedule constant(double factor) {
  return [factor](std::int64_t) { return factor; };
}

Schedule step(std::int64_t every, double gamma) {
  FQ_CHECK(every >= 1 && gamma >= 0, "schedule.step",
           "every is {} and gamma {}: use 1 or more, and 0 or more", every, gamma);
  return [=](std::int64_t at) { return std::pow(gamma, static_cast<double>(at / every)); };
}

Schedule cosine(std::int64_t total, double last) {
  FQ_CHECK(total >= 1, "schedule.cosine", "total is {}: use 1 step or more", total);
  return [=](std::int64_t at) {
    return half_cosine(1, last, static_cast<double>(std::min(at, total)) / static_cast<double>(total));
  };
}

Schedule warm_up(std::int64_t steps, Schedule after, double first) {
  FQ_CHECK(steps >= 0 && first >= 0, "schedule.warm_up", "steps is {} and first {}: use 0 or more", steps,
           first);
  // Schedules are functions of the step alone and own their parts: they can be called in any order.
  return [=, after = std::move(after)](std::int64_t at) {
    if (at >= steps) return after(at - steps);
    return first + (1 - first) * static_cast<double>(at) / static_cast<double>(steps);
  };
}

Schedule one_cycle(std::int64_t total, double fraction, double div, double final_div) {
  FQ_CHECK(total >= 1, "schedule.one_cycle", "total is {}: use 1 step or more", total);
  FQ_CHECK(fraction >= 0 && fraction <= 1, "schedule.one_cycle", "fraction is {}: use 0 to 1", fraction);
  FQ_CHECK(div >= 1 && final_div >= 1, "schedule.one_cycle", "div is {} and final_div {}: use 1 or more", div,
           final_div);
  // As in torch's OneCycleLR, the peak is at step fraction * total - 1 and the end at step total - 1.
  const double peak = std::max(fraction * static_cast<double>(total) - 1, 0.0);
  const double end = static_cast<double>(total - 1);
  const double first = 1 / div, last = first / final_div;
  return [=](std::int64_t step) {
    const double at = std::min(static_cast<double>(step), end);
    // peak > 0 here, and end > peak below: no division by zero.
    if (at < peak) return half_cosine(first, 1, at / peak);
    return end > peak ? half_cosine(1, last, (at - peak) / (end - peak)) : 1.0;
  };
}

Schedule multi_step(std::vector<std::int64_t> milestones, double gamma) {
  FQ_CHECK(std::ranges::is_sorted(milestones) && (milestones.empty() || milestones.front() >= 0),
           "schedule.multi_step", "the milestones are not ascending steps of 0 or more");
  FQ_CHECK(gamma >= 0, "schedule.multi_step", "gamma is {}: use 0 or more", gamma);
  return [gamma, milestones = std::move(milestones)](std::int64_t at) {
    return std::pow(gamma,
                    // The number of milestones at or before the step.
                    static_cast<double>(std::ranges::upper_bound(milestones, at) - milestones.begin()));
  };
}

Schedule polynomial(std::int64_t total, double power, double last) {
  FQ_CHECK(total >= 1 && power > 0, "schedule.polynomial",
           "total is {} and power {}: use 1 step or more, and more than 0", total, power);
  return [=](std::int64_t at) {
    const double left = 1 - static_cast<double>(std::min(at, total)) / static_cast<double>(total);
    return last + (1 - last) * std::pow(left, power);
  };
}

Schedule restarts(std::int64_t period, std::int64_t grow, double last) {
  FQ_CHECK(period >= 1 && grow >= 1, "schedule.restarts", "period is {} and grow {}: use 1 or more", period,
           grow);
  return [=](std::int64_t at) {
    std::int64_t length = period;
    // Equal periods need no loop over all of them. With growing periods, the loop is logarithmic in the step.
    if (grow == 1) at %= length;
    for (; at >= length; length *= grow) at -= length;
    return half_cosine(1, last, static_cast<double>(at) / static_cast<double>(length));
  };
}

Schedule sequence(std::vector<std::pair<std::int64_t, Schedule>> parts) {
  FQ_CHECK(!parts.empty(), "schedule.sequence", "the list is empty: use at least one schedule");
  FQ_CHECK(std::ranges::all_of(parts, [](const auto& part) { return part.first >= 0; }), "schedule.sequence",
           "a part has a negative length");
  return [parts = std::move(parts)](std::int64_t at) {
    // The length of the last part is not used: it has no end.
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      if (at < parts[i].first) return parts[i].second(at);
      at -= parts[i].first;
    }
    return parts.back().second(at);
  };
}

Schedule product(Schedule a, Schedule b) {
  return [a = std::move(a), b = std::move(b)](std::int64_t at) { return a(at) * b(at); };
}

}  // namespace schedule

const std::vector<std::string>& schedule_kinds() {
  static const std::vector<std::string> kinds{"constant", "step",       "multi_step", "cosine",
                                              "restarts", "polynomial", "one_cycle",  "plateau"};
  return kinds;
}

Schedule make_schedule(const ScheduleOptions& options, std::int64_t total) {
  const auto& kinds = schedule_kinds();
  FQ_CHECK(std::ranges::find(kinds, options.kind) != kinds.end(), "schedule", "there is no schedule '{}'{}",
           options.kind, detail::did_you_mean(options.kind, kinds));
  // The schedule runs over the steps after the warm-up; at least one, for a run that is all warm-up.
  const std::int64_t rest = std::max<std::int64_t>(total - options.warm_up, 1);
  // "plateau" stays constant here: the Trainer multiplies by the factor of a Plateau.
  Schedule main = schedule::constant();
  // Lengths of 0 come from the length of the run, rounded up.
  if (options.kind == "step") {
    const std::int64_t third = std::max<std::int64_t>((rest + 2) / 3, 1);
    main = schedule::step(options.step_every > 0 ? options.step_every : third, options.step_factor);
  }
  if (options.kind == "multi_step") {
    const bool none = options.milestones.empty();
    main = schedule::multi_step(none ? std::vector<std::int64_t>{rest / 2, rest * 3 / 4} : options.milestones,
                                options.step_factor);
  }
  if (options.kind == "restarts") {
    const std::int64_t tenth = std::max<std::int64_t>((rest + 9) / 10, 1);
    main = schedule::restarts(options.period > 0 ? options.period : tenth, options.grow, options.last);
  }
  if (options.kind == "polynomial") main = schedule::polynomial(rest, options.power, options.last);
  if (options.kind == "cosine") main = schedule::cosine(rest, options.last);
  if (options.kind == "one_cycle")
    main = schedule::one_cycle(rest, options.rise, options.div, options.final_div);
  return options.warm_up > 0 ? schedule::warm_up(options.warm_up, std::move(main)) : main;
}

Plateau::Plateau(double by, std::int64_t patience) : by_(by), patience_(patience) {
  FQ_CHECK(by > 0 && by < 1 && patience >= 0, kPlateau,
           "the factor is {} and the patience {}: use between 0 and 1, and 0 or more", by, patience);
}

double Plateau::update(double score) {
  // The first score is always an improvement. The threshold is relative to |best|, because scores can be
  // negative.
  const bool better = !std::isnan(score) && (!started_ || score > best_ + std::abs(best_) * kThreshold);
  if (better) {
    best_ = score;
    started_ = true;
  }
  waited_ = better ? 0 : waited_ + 1;
  if (waited_ <= patience_) return factor_;
  // A new patience begins at the lower rate.
  waited_ = 0;
  return factor_ *= by_;
}

StateDict Plateau::state_dict() const {
  StateDict out;
  out.set_attribute("best", best_);
  out.set_attribute("factor", factor_);
  out.set_attribute("waited", waited_);
  out.set_attribute("started", started_);
  return out;
}

void Plateau::load_state(const StateDict& state) {
  try {
    const double best = state.attribute("best").get<double>(),
                 factor = state.attribute("factor").get<double>();
    const bool started = state.attribute("started").get<bool>();
    const auto waited = detail::whole_number(state, "waited", kPlateau);
    FQ_CHECK(std::isfinite(best) && factor > 0 && factor <= 1, kPlateau,
             "the state is damaged: a factor of {}", factor);
    // Assigned only after all checks: a damaged state leaves the object unchanged.
    waited_ = waited;
    best_ = best;
    factor_ = factor;
    started_ = started;
  } catch (const nlohmann::json::exception& error) {
    throw ArgumentError(fmt::format("[plateau] the state is damaged: {}", error.what()));
  }
}

}  // namespace fq
