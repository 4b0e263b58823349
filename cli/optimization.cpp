#include "fakequant/cli/optimization.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/network/detail/named_values.h"

namespace fq::cli {
namespace {

using fq::detail::NamedValues;

using Words = std::vector<std::string>;

constexpr double kMany = 1e9;
constexpr std::int64_t kMostWarmUp = std::int64_t{1} << 40;

// Parameters that the optimizer accepts after its name. momentum and nesterov are settings.
Words optimizer_keys(const std::string& kind) {
  if (kind == "sgd") return {"dampening"};
  if (kind == "adam" || kind == "adamw") return {"beta1", "beta2", "eps", "amsgrad"};
  if (kind == "rmsprop") return {"alpha", "eps", "centered"};
  if (kind == "adagrad") return {"decay", "eps"};
  if (kind == "lion") return {"beta1", "beta2"};
  return {"beta1", "beta2", "eps"};
}

Words schedule_keys(const std::string& kind) {
  if (kind == "step") return {"every", "factor"};
  if (kind == "multistep") return {"at", "factor"};
  if (kind == "cosine") return {"last"};
  if (kind == "restarts") return {"period", "grow", "last"};
  if (kind == "polynomial") return {"power", "last"};
  if (kind == "onecycle") return {"rise", "div", "final"};
  if (kind == "plateau") return {"patience", "factor"};
  return {};
}

/// Returns the schedule names of the library without underscores.
Words schedule_words() {
  Words words = schedule_kinds();
  for (auto& word : words) std::erase(word, '_');
  return words;
}

std::string schedule_kind(const std::string& word) {
  const auto words = schedule_words();
  // Words and kinds have the same order.
  return schedule_kinds()[static_cast<std::size_t>(std::ranges::find(words, word) - words.begin())];
}

/// A parameter of an optimizer or a schedule: its setting, and its word in the flag.
struct Detail {
  const char *key, *word, *unit, *help;
};

// Two spellings of one parameter: "adam,beta1=0.8" and --set optimizer.beta1=0.8. The setting is appended to
// the text of the flag, so giving both is an error.
constexpr Detail kOfOptimizer[]{
    {"optimizer.beta1", "beta1", "SHARE", "of adam, adamw, nadam, lamb, lion: decay of the mean gradient"},
    {"optimizer.beta2", "beta2", "SHARE", "of adam, adamw, nadam, lamb, lion: decay of the mean square"},
    {"optimizer.eps", "eps", "NUMBER", "of all but sgd and lion: added to the denominator"},
    {"optimizer.amsgrad", "amsgrad", "0|1", "of adam and adamw: use the largest mean square so far"},
    {"optimizer.dampening", "dampening", "SHARE", "of sgd: of gradients in the momentum"},
    {"optimizer.alpha", "alpha", "SHARE", "of rmsprop: decay of the mean square"},
    {"optimizer.centered", "centered", "0|1", "of rmsprop: subtract the mean gradient"},
    {"optimizer.rate_decay", "decay", "RATE", "of adagrad: decay of the learning rate"},
};
constexpr Detail kOfSchedule[]{
    {"schedule.step_every", "every", "STEPS", "of step: steps between two changes (3e: epochs)"},
    {"schedule.milestones", "at", "STEPS:..", "of multistep: steps of the changes (3e: epochs)"},
    {"schedule.step_factor", "factor", "FACTOR", "of step, multistep, plateau: factor of a change"},
    {"schedule.patience", "patience", "EPOCHS", "of plateau: epochs without improvement before a change"},
    {"schedule.last", "last", "FACTOR", "of cosine, restarts, polynomial: factor at the end"},
    {"schedule.period", "period", "STEPS", "of restarts: steps of the first period (3e: epochs)"},
    {"schedule.grow", "grow", "TIMES", "of restarts: length of a period over the one before"},
    {"schedule.power", "power", "NUMBER", "of polynomial: exponent"},
    {"schedule.rise", "rise", "SHARE", "of onecycle: share of the run with a rising rate"},
    {"schedule.div", "div", "FACTOR", "of onecycle: highest rate over the first one"},
    {"schedule.final_div", "final", "FACTOR", "of onecycle: first rate over the last one"},
};

/// Returns the value of a flag with the parameters that are given as settings.
std::string with_details(std::string text, const std::map<std::string, std::optional<std::string>>& details) {
  for (const auto& [word, value] : details)
    if (value) text += fmt::format(",{}={}", word, *value);
  return text;
}

}  // namespace

void add_optimization_flags(FlagSet& set, OptimizationOptions& options) {
  set.value(options.optimizer, "optimizer", "NAME",
            "sgd (,dampening=D), adam or adamw (,beta1=B,beta2=B,eps=E,amsgrad=1), rmsprop "
            "(,alpha=A,eps=E,centered=1), adagrad (,decay=D,eps=E), nadam or lamb (,beta1=B,beta2=B,eps=E), "
            "lion (,beta1=B,beta2=B)")
      .value(options.weight_decay, "weight-decay", "RATE", {0, kMany},
             "decay of weights, not of biases and norms")
      .value(options.schedule, "schedule", "NAME",
             "constant, step (,every=STEPS,factor=F), multistep (,at=STEPS:STEPS..,factor=F), cosine "
             "(,last=F), restarts (,period=STEPS,grow=N,last=F), polynomial (,power=P,last=F), onecycle "
             "(,rise=SHARE,div=D,final=D), over the whole run, or plateau (,patience=EPOCHS,factor=F); STEPS "
             "as 3e are epochs");
}

void add_optimization_settings(FlagSet& set, OptimizationOptions& options) {
  set.need({"optimizer.momentum", "optimizer.nesterov"}, "optimizer", {"sgd", "rmsprop"});
  set.value(options.momentum, "optimizer.momentum", "SHARE", {0, 0.9999999},
            "of sgd (default: 0.9) and rmsprop (default: 0)")
      .toggle(options.nesterov, "optimizer.nesterov", "of sgd: Nesterov's form of the momentum");
  for (const auto& detail : kOfOptimizer)
    set.value(options.of_optimizer[detail.word], detail.key, detail.unit, detail.help);
  set.value(options.warm_up, "schedule.warm_up", "STEPS", {0, kMostWarmUp},
            "steps of growth to the first learning rate");
  for (const auto& detail : kOfSchedule)
    set.value(options.of_schedule[detail.word], detail.key, detail.unit, detail.help);
}

OptimizerOptions optimizer_options(const OptimizationOptions& options, const std::string& command) {
  const NamedValues given(command, "optimizer", with_details(options.optimizer, options.of_optimizer),
                          optimizer_kinds(), optimizer_keys);
  OptimizerOptions out;
  out.kind = given.name();
  if (options.lr) out.learning_rate = *options.lr;
  out.weight_decay = options.weight_decay;
  const double momentum = options.momentum.value_or(0.9);
  // 0.9 is the default of SGD alone. Other optimizers keep the library's value.
  if (out.kind == "sgd" || options.momentum) out.momentum = momentum;
  out.nesterov = options.nesterov;
  FQ_CHECK(!out.nesterov || (out.kind == "sgd" && momentum > 0), command,
           "--set optimizer.nesterov is for --optimizer sgd with an optimizer.momentum above 0");
  out.dampening = given.number("dampening", out.dampening);
  out.beta1 = given.number("beta1", out.beta1);
  if (given.has("beta2")) out.beta2 = given.number("beta2", 0);
  if (given.has("eps")) out.eps = given.number("eps", 0);
  out.amsgrad = given.on("amsgrad");
  out.alpha = given.number("alpha", out.alpha);
  out.centered = given.on("centered");
  out.rate_decay = given.number("decay", out.rate_decay);
  return out;
}

ScheduleOptions schedule_options(const OptimizationOptions& options, std::int64_t steps_per_epoch,
                                 const std::string& command) {
  const NamedValues given(command, "schedule", with_details(options.schedule, options.of_schedule),
                          schedule_words(), schedule_keys);
  ScheduleOptions out;
  out.kind = schedule_kind(given.name());
  out.warm_up = options.warm_up;
  // Steps may be given as epochs ("3e"), hence the number of steps per epoch.
  out.step_every = given.steps("every", out.step_every, steps_per_epoch);
  out.milestones = given.step_list("at", steps_per_epoch);
  out.step_factor = given.number("factor", out.step_factor);
  out.patience = given.whole("patience", out.patience);
  out.last = given.number("last", out.last);
  out.period = given.steps("period", out.period, steps_per_epoch);
  out.grow = given.whole("grow", out.grow);
  out.power = given.number("power", out.power);
  out.rise = given.number("rise", out.rise);
  out.div = given.number("div", out.div);
  out.final_div = given.number("final", out.final_div);
  return out;
}

}  // namespace fq::cli
