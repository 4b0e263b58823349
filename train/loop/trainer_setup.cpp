#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/modules/checkpoint.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/loop/detail/trainer_body.h"
#include "fakequant/train/loop/detail/trainer_options.h"
#include "fakequant/train/ranks/sharded_optimizer.h"

namespace fq {
namespace {

constexpr std::string_view kTrain = "train";
constexpr std::uint64_t kAdapters = std::uint64_t{1} << 62;  // no batch draws from that

nlohmann::json parsed(const std::string& text) {
  if (text.empty()) return nullptr;
  return detail::JsonText(text, fmt::format("{}: the model's description", kTrain)).value();
}

/// Ranges become parameters before the optimizer asks for them.
std::shared_ptr<Module> prepared(std::shared_ptr<Module> model, TrainerOptions& options) {
  FQ_CHECK(model != nullptr, kTrain, "the model is null");
  check_not_compressed(*model, kTrain);
  if (options.amax == AmaxMode::learned) learn_ranges(*model, options.amax_gradient);
  if (options.learn_weight_ranges) learn_weight_ranges(*model, options.amax_gradient);
  if (options.amax_rate != 1) options.optimizer.rules.push_back({"*.amax", std::nullopt, options.amax_rate});
  if (!options.checkpoint_blocks.empty()) set_checkpointing(*model, options.checkpoint_blocks);
  return model;
}

std::unique_ptr<Optimizer> optimizer_of(const Module& model, const TrainerOptions& options) {
  if (!options.shard_optimizer) return make_optimizer(model, options.optimizer);
  FQ_CHECK(options.ranks, kTrain, "shard_optimizer is for several processes: give ranks, or leave it out");
  return std::make_unique<ShardedOptimizer>(options.ranks, model, options.optimizer);
}

std::unique_ptr<LowRankAdapters> adapters_of(Module& model, const TrainerOptions& options) {
  if (options.low_rank.rank == 0) return nullptr;
  detail::check_low_rank(options);
  const RandomScope random(options.seed, kAdapters);
  return std::make_unique<LowRankAdapters>(model, options.low_rank);
}

void warn_of_one_class(const Dataset& data) {
  const Tensor labels = data.labels();
  if (!labels.defined() || labels.dtype() != DType::i64 || labels.rank() != 1) return;
  const auto* begin = labels.data<std::int64_t>();
  if (std::all_of(begin, begin + labels.numel(), [&](auto label) { return label == *begin; }))
    log(LogLevel::warning,
        fmt::format("[train] all {} labels of the training data are {}: whatever is trained learns to say {}",
                    labels.numel(), *begin, *begin));
}

}  // namespace

Trainer::Body::Body(std::shared_ptr<Module> network, std::shared_ptr<DataLoader> data, TrainerOptions chosen,
                    std::shared_ptr<DataLoader> held_out, TrainerCallbacks hooks)
    : model(prepared(std::move(network), chosen)),
      training(std::move(data)),
      validation(std::move(held_out)),
      options(std::move(chosen)),
      callbacks(std::move(hooks)),
      description(parsed(options.model)),
      adapters(adapters_of(*model, options)),
      optimizer(optimizer_of(adapters ? adapters->parameters() : *model, options)),
      parameters(adapters ? adapters->parameters().parameters() : model->parameters()),
      early(options.patience),
      switches(*model),
      ranges(*model),
      passes(model, {.label_smoothing = options.label_smoothing,
                     .loss = options.loss,
                     .distillation = options.distillation,
                     .capture = options.capture && options.accumulation == 1 && !options.ranks && !adapters &&
                                !options.mask}) {
  detail::check_options(options);
  FQ_CHECK(training != nullptr && (training->data().classes() > 0 || options.loss), kTrain,
           "the training data has no labels of classes: give some, or a loss of your own for others");
  if (options.ranks) {
    detail::check_ranks(options, training->options());
    shared.emplace(options.ranks, *model, options.amax == AmaxMode::running, options.reduction);
  }
  warn_of_one_class(training->data());
  FQ_CHECK(options.patience == 0 || validation, kTrain, "patience needs validation data: give some, or 0");
  if (const auto& followed = options.distillation; followed.teacher && followed.weight > 0)
    teacher.emplace(followed.teacher, *training, model->device());
  FQ_CHECK(!options.validate_start || validation, kTrain,
           "validate_start needs validation data: give some, or leave it out");
  detail::check_reestimation(*model, *training, options.reestimate_bn);
  if (options.average_decay != 0) average.emplace(*model, options.average_decay);
  detail::check_steps(options, total_steps());
  schedule = make_schedule(options.schedule, total_steps());
  if (options.schedule.kind == "plateau") {
    FQ_CHECK(validation, kTrain,
             "the schedule plateau needs validation data: give some, or another schedule");
    plateau.emplace(options.schedule.step_factor, options.schedule.patience);
  }
  progress.seed = options.seed;
}

}  // namespace fq
