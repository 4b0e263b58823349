#include "fakequant/train/loop/detail/run_settings.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

using nlohmann::json;

std::string value_text(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

json settings_of(const OptimizerOptions& o) {
  json out{{"optimizer", o.kind},
           {"learning_rate", o.learning_rate},
           {"weight_decay", o.weight_decay},
           {"decay_all", o.decay_all}};
  if (o.kind == "sgd") {
    out.update(
        {{"momentum", o.momentum.value_or(0.9)}, {"nesterov", o.nesterov}, {"dampening", o.dampening}});
    return out;
  }
  if (o.kind == "adagrad")
    out["rate_decay"] = o.rate_decay;
  else if (o.kind == "rmsprop")
    out.update({{"momentum", o.momentum.value_or(0)}, {"alpha", o.alpha}, {"centered", o.centered}});
  else
    out.update({{"beta1", o.beta1}, {"beta2", o.beta2.value_or(o.kind == "lion" ? 0.99 : 0.999)}});
  if (o.kind == "adam" || o.kind == "adamw") out["amsgrad"] = o.amsgrad;
  out["eps"] = o.eps.value_or(o.kind == "adagrad" ? 1e-10 : o.kind == "lamb" ? 1e-6 : 1e-8);
  return out;
}

json settings_of(const ScheduleOptions& o) {
  json out{{"schedule", o.kind}, {"warm_up", o.warm_up}};
  if (o.kind == "step") out.update({{"step_every", o.step_every}, {"step_factor", o.step_factor}});
  if (o.kind == "multi_step") out.update({{"milestones", o.milestones}, {"step_factor", o.step_factor}});
  if (o.kind == "plateau") out.update({{"plateau_patience", o.patience}, {"step_factor", o.step_factor}});
  if (o.kind == "polynomial") out.update({{"power", o.power}, {"last", o.last}});
  if (o.kind == "restarts") out.update({{"period", o.period}, {"grow", o.grow}, {"last", o.last}});
  if (o.kind == "cosine") out["last"] = o.last;
  if (o.kind == "one_cycle") out.update({{"rise", o.rise}, {"div", o.div}, {"final_div", o.final_div}});
  return out;
}

json settings_of(const DistillationOptions& o) {
  if (o.teacher == nullptr) return {{"distillation", "none"}};
  json out{{"distillation", o.kind}, {"teacher_weight", o.weight}};
  if (o.kind == "kl") out["temperature"] = o.temperature;
  return out;
}

json settings_of(const LowRankOptions& o) {
  json out{{"lora_rank", o.rank}};
  if (o.rank > 0) out.update({{"lora_scale", o.scale()}, {"lora_layers", o.layers}});
  return out;
}

json ranges_of(const TrainerOptions& o) {
  if (o.ranges.amax == AmaxMode::learned)
    return {{"amax_mode", "learned"},
            {"amax_gradient", o.ranges.amax_gradient == AmaxGradient::lsq ? "lsq" : "clip"}};
  if (o.ranges.amax == AmaxMode::running)
    return {{"amax_mode", "running"},
            {"amax_momentum", o.ranges.amax_momentum},
            {"freeze_amax_after", o.ranges.freeze_amax_after}};
  return {{"amax_mode", "frozen"}};
}

json settings_of(const LoaderOptions& o) {
  json out{{"batch_size", o.batch_size},       {"shuffle", o.shuffle},
           {"drop_last", o.drop_last},         {"loader_seed", o.seed},
           {"class_weights", o.class_weights}, {"balanced", o.balanced},
           {"number_labels", o.number_labels}};
  for (const auto& change : augment_changes())
    for (const auto& number : change.numbers)
      out[fmt::format("augment_{}", number.name)] = o.augment.*number.value;
  return out;
}

}  // namespace

json run_settings(const TrainerOptions& options, const DataLoader& training, const DataLoader* validation) {
  json out{{"accumulation", options.update.accumulation},
           {"exact_sums",
            options.distributed.ranks != nullptr && options.distributed.reduction == fq::Reduction::exact},
           {"clip_norm", options.update.clip_norm},
           {"label_smoothing", options.objective.label_smoothing},
           {"average_decay", options.update.average_decay},
           {"seed", options.seed},
           {"freeze_bn_after", options.batch_norm.freeze_bn_after},
           {"reestimate_bn", options.batch_norm.reestimate_bn},
           {"quant_start", options.ranges.quant_start},
           {"learn_weight_ranges", options.ranges.learn_weight_ranges},
           {"amax_rate", options.ranges.amax_rate},
           {"backward", options.execution.backward == BackwardType::bf16 ? "bf16" : "fp32"},
           {"validation_samples", validation == nullptr ? 0 : validation->data().size()}};
  out.update(settings_of(options.optimizer));
  out.update(settings_of(options.schedule));
  out.update(settings_of(options.objective.distillation));
  out.update(settings_of(options.low_rank));
  out.update(ranges_of(options));
  out.update(settings_of(training.options()));
  return out;
}

json completed(json settings) {
  if (settings.contains("augment_flip"))
    settings["augment_hflip"] = settings.at("augment_flip") == true ? 0.5 : 0.0;
  json out = settings_of(LoaderOptions{});
  for (const char* key : {"batch_size", "shuffle", "drop_last", "loader_seed"}) out.erase(key);
  out.update(settings_of(DistillationOptions{}));
  out.update(settings_of(LowRankOptions{}));
  out["reestimate_bn"] = 0;
  out["exact_sums"] = false;
  out["amax_rate"] = 1.0;
  out.update(settings);
  return out;
}

void check_removed_settings(const json& settings, const std::string& path) {
  static const json removed{
      {"ewgs", 0.0},       {"soft_share", 0.0},    {"quant_noise", 0.0},   {"stochastic_rounding", false},
      {"amax_decay", 0.0}, {"oscillation", "off"}, {"progressive", "none"}};
  for (const auto& [option, off] : removed.items())
    FQ_CHECK(
        !settings.contains(option) || settings.at(option) == off, "resume",
        "{}: the run uses {} ({}), which this version has removed. Start a new run from its weights into "
        "another file",
        path, option, value_text(settings.at(option)));
}

std::vector<std::string> differences(const json& there, const json& here) {
  std::vector<std::string> out;
  const auto differs = [&](const std::string& key) {
    return there.contains(key) && here.contains(key) && there.at(key) != here.at(key);
  };
  const bool one_seed = differs("seed") && differs("loader_seed") &&
                        there.at("seed") == there.at("loader_seed") &&
                        here.at("seed") == here.at("loader_seed");
  for (const auto& [key, value] : here.items())
    if (differs(key) && !(one_seed && key == "loader_seed"))
      out.push_back(
          fmt::format("{} is {} there, {} here", key, value_text(there.at(key)), value_text(value)));
  return out;
}

}  // namespace fq::detail
