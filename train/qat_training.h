#pragma once

/// How a quantized network is fine-tuned where nobody asks for something else, put into a Trainer's options.
///
///     TrainerOptions options{.epochs = 5};
///     complete_training(options, QuantConfig::preset("w2a2"));  // learned ranges, rates

#include <memory>
#include <optional>
#include <string>

#include "fakequant/train/data/dataset.h"
#include "fakequant/train/qat_defaults.h"

namespace fq {

/// What somebody chose in place of QatDefaults.
struct TrainingChoices {
  std::optional<AmaxMode> amax = {};
  std::optional<AmaxGradient> amax_gradient = {};
  std::optional<bool> learn_weight_ranges = {};
  std::optional<double> amax_rate = {}, learning_rate = {};
  /// Kind, temperature and weight of DistillationOptions.
  std::optional<std::string> distillation_kind = {};
  std::optional<double> temperature = {}, teacher_share = {};
};

/// Puts the defaults of `config` into `options` but for what was chosen. The rate is that towards the network
/// itself where `self`, which says that the teacher of `options.distillation` is the same network in float.
/// On `text` it is another, towards the network itself or not, and so are share and temperature of that
/// teacher; those of others stay as `options` has them. Adapters (`options.low_rank`) keep the ranges
/// that were calibrated, and have a rate of their own.
void complete_training(TrainerOptions& options, const QuantConfig& config,
                       const TrainingChoices& choices = {}, bool self = false, bool text = false);

/// "ranges learned (lsq), of weights too; learning rate 0.004; towards the float network (kl, temperature 2),
/// a share of 1".
[[nodiscard]] std::string describe_training(const TrainerOptions& options, bool self);

/// Whether samples are rows of token ids with a class for each token.
[[nodiscard]] bool is_text(const Dataset& data);
/// The accuracy in float, 0 to 1, on up to 512 samples with one class each.
[[nodiscard]] double float_accuracy(Module& model, const std::shared_ptr<const Dataset>& data);
/// Whether a network that is right for that share of its training images knows them by heart, at least 99 %:
/// it had better follow what it says itself in float then, because their labels hold nothing new but noise.
[[nodiscard]] bool knows_by_heart(double accuracy) noexcept;
/// Whether a network of that config had better follow what it says itself in float, where nobody asks for
/// something else: on `text` by QatDefaults::text_teacher_share, on other data where it knows that by heart,
/// by the `accuracy` in float.
[[nodiscard]] bool follows_itself(const QuantConfig& config, double accuracy, bool text);

}  // namespace fq
