#include "fakequant/train/qat_training.h"

#include <fmt/format.h>

#include "fakequant/train/data/some_samples.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/ptq/detail/float_run.h"

namespace fq {
namespace {

constexpr std::int64_t kSamples = 512, kBatch = 64;
constexpr double kByHeart = 0.99, kLowRankRate = 1e-3, kTextRangeRate = 0.1;

std::string describe_ranges(const TrainerOptions& options) {
  const char* gradient = options.ranges.amax_gradient == AmaxGradient::lsq ? "lsq" : "clip";
  std::string out = options.ranges.amax == AmaxMode::running ? "running" : "frozen";
  if (options.ranges.amax == AmaxMode::learned)
    out =
        fmt::format("learned ({}){}", gradient, options.ranges.learn_weight_ranges ? ", of weights too" : "");
  else if (options.ranges.learn_weight_ranges)
    out += fmt::format(", of weights learned ({})", gradient);
  if (options.ranges.amax_rate != 1) out += fmt::format(" at {} times the rate", options.ranges.amax_rate);
  return out;
}

void complete_teacher(DistillationOptions& out, const QatDefaults& defaults, const TrainingChoices& choices,
                      bool itself_on_text) {
  if (itself_on_text) {
    out.temperature = defaults.text_temperature;
    if (defaults.text_teacher_share > 0) out.weight = defaults.text_teacher_share;
  }
  out.temperature = choices.temperature.value_or(out.temperature);
  out.weight = choices.teacher_share.value_or(out.weight);
}

}  // namespace

void complete_training(TrainerOptions& options, const QuantConfig& config, const TrainingChoices& choices,
                       bool self, bool text) {
  QatDefaults defaults = qat_defaults(config);
  if (options.low_rank.rank > 0) {
    defaults.amax = AmaxMode::frozen;
    defaults.learn_weight_ranges = false;
    defaults.learning_rate = defaults.distilled_learning_rate = defaults.text_learning_rate = kLowRankRate;
    defaults.full_rate_steps = 0;
  }
  if (text && defaults.text_keeps_activations) {
    defaults.amax = AmaxMode::frozen;
    defaults.amax_rate = kTextRangeRate;
  }
  options.ranges.amax = choices.amax.value_or(defaults.amax);
  options.ranges.amax_gradient = choices.amax_gradient.value_or(defaults.amax_gradient);
  options.ranges.learn_weight_ranges = choices.learn_weight_ranges.value_or(
      defaults.learn_weight_ranges && options.ranges.amax == defaults.amax);
  const bool learns = options.ranges.amax == AmaxMode::learned || options.ranges.learn_weight_ranges;
  if (choices.amax_rate || learns) options.ranges.amax_rate = choices.amax_rate.value_or(defaults.amax_rate);
  options.optimizer.learning_rate = choices.learning_rate.value_or(text   ? defaults.text_learning_rate
                                                                   : self ? defaults.distilled_learning_rate
                                                                          : defaults.learning_rate);
  if (!choices.learning_rate) options.update.full_rate_steps = defaults.full_rate_steps;
  complete_teacher(options.objective.distillation, defaults, choices, self && text);
}

std::string describe_training(const TrainerOptions& options, bool self) {
  std::string out =
      fmt::format("ranges {}; learning rate {}", describe_ranges(options), options.optimizer.learning_rate);
  if (const auto& adapters = options.low_rank; adapters.rank > 0)
    out += fmt::format("; adapters of rank {} alone, times {}", adapters.rank, adapters.scale());
  if (const auto& teacher = options.objective.distillation; teacher.teacher != nullptr)
    out += fmt::format(
        "; towards {} ({}{}), a share of {}", self ? "the float network" : "the teacher", teacher.kind,
        teacher.kind == "kl" ? fmt::format(", temperature {}", teacher.temperature) : "", teacher.weight);
  return out;
}

bool is_text(const Dataset& data) {
  if (!data.token_ids()) return false;
  const std::int64_t first = 0;
  const auto [x, y, rows, passed_over] = data.read({&first, 1});
  return y.defined() && !is_floating(y.dtype()) && y.shape() == x.shape();
}

double float_accuracy(Module& model, const std::shared_ptr<const Dataset>& data) {
  DataLoader loader(some_samples(data, kSamples, 0),
                    {.batch_size = kBatch, .shuffle = false, .prefetch = 0, .device = model.device()});
  const ptq::FloatScope in_float(model);
  return evaluate(model, loader).accuracy;
}

bool knows_by_heart(double accuracy) noexcept { return accuracy >= kByHeart; }

bool follows_itself(const QuantConfig& config, double accuracy, bool text) {
  return text ? qat_defaults(config).text_teacher_share > 0 : knows_by_heart(accuracy);
}

}  // namespace fq
