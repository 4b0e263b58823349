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

/// The library's names without underscores.
Words schedule_words() {
  Words words = schedule_kinds();
  for (auto& word : words) std::erase(word, '_');
  return words;
}

std::string kind_of(const std::string& word) {
  const auto words = schedule_words();
  return schedule_kinds()[static_cast<std::size_t>(std::ranges::find(words, word) - words.begin())];
}

}  // namespace

void add_optimization_flags(FlagSet& set, const char* rate) {
  set.value("optimizer", "NAME",
            "sgd (,dampening=D), adam or adamw (,beta1=B,beta2=B,eps=E,amsgrad=1), rmsprop "
            "(,alpha=A,eps=E,centered=1), adagrad (,decay=D,eps=E), nadam or lamb (,beta1=B,beta2=B,eps=E), "
            "lion "
            "(,beta1=B,beta2=B)",
            "adamw");
  constexpr const char* kLr = "learning rate; the highest one of a schedule";
  if (rate != nullptr)
    set.value("lr", "RATE", kLr, rate);
  else
    set.value("lr", "RATE",
              fmt::format("{} (default: 0.0001; 0.0005 with 4 bits and fewer, 0.001 with such floats and "
                          "0.004 with such integers of activations; on text 0.0003 to 0.004)",
                          kLr)
                  .c_str());
  set.need({"momentum", "nesterov"}, "optimizer", {"sgd", "rmsprop"});
  set.value("momentum", "SHARE", "of sgd; of rmsprop where it is given", "0.9")
      .toggle("nesterov", "sgd looks ahead")
      .value("weight-decay", "RATE", "of weights, not of biases and norms", "0.01")
      .value(
          "schedule", "NAME",
          "constant, step (,every=STEPS,factor=F), multistep (,at=STEPS:STEPS..,factor=F), cosine (,last=F), "
          "restarts (,period=STEPS,grow=N,last=F), polynomial (,power=P,last=F), onecycle "
          "(,rise=SHARE,div=D,final=D), over the whole run, or plateau (,patience=EPOCHS,factor=F); STEPS as "
          "3e "
          "are epochs",
          "onecycle")
      .value("warmup", "STEPS", "the learning rate grows for so many steps first", "0");
}

OptimizerOptions read_optimizer(const Flags& flags) {
  const NamedValues given(flags.command(), "optimizer", flags.text("optimizer"), optimizer_kinds(),
                          optimizer_keys);
  OptimizerOptions options;
  options.kind = given.name();
  if (flags.has("lr")) options.learning_rate = flags.number("lr", 0, 1e38);
  options.weight_decay = flags.number("weight-decay", 0, kMany);
  const double momentum = flags.number("momentum", 0, 0.9999999);
  if (options.kind == "sgd" || flags.given("momentum")) options.momentum = momentum;
  options.nesterov = flags.on("nesterov");
  FQ_CHECK(!options.nesterov || (options.kind == "sgd" && momentum > 0), flags.command(),
           "--nesterov is for --optimizer sgd with a --momentum above 0");
  options.dampening = given.number("dampening", options.dampening);
  options.beta1 = given.number("beta1", options.beta1);
  if (given.has("beta2")) options.beta2 = given.number("beta2", 0);
  if (given.has("eps")) options.eps = given.number("eps", 0);
  options.amsgrad = given.on("amsgrad");
  options.alpha = given.number("alpha", options.alpha);
  options.centered = given.on("centered");
  options.rate_decay = given.number("decay", options.rate_decay);
  return options;
}

ScheduleOptions read_schedule(const Flags& flags, std::int64_t steps_per_epoch) {
  const NamedValues given(flags.command(), "schedule", flags.text("schedule"), schedule_words(),
                          schedule_keys);
  ScheduleOptions options;
  options.kind = kind_of(given.name());
  options.warm_up = flags.integer("warmup", 0, kMostWarmUp);
  options.step_every = given.steps("every", options.step_every, steps_per_epoch);
  options.milestones = given.step_list("at", steps_per_epoch);
  options.step_factor = given.number("factor", options.step_factor);
  options.patience = given.whole("patience", options.patience);
  options.last = given.number("last", options.last);
  options.period = given.steps("period", options.period, steps_per_epoch);
  options.grow = given.whole("grow", options.grow);
  options.power = given.number("power", options.power);
  options.rise = given.number("rise", options.rise);
  options.div = given.number("div", options.div);
  options.final_div = given.number("final", options.final_div);
  return options;
}

}  // namespace fq::cli
