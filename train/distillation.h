#pragma once

/// Distillation: training towards what another network says, beside the labels (Hinton et al., 2015).
///
///     TrainerOptions options;
///     options.objective.distillation = {.teacher = float_network, .temperature = 4, .weight = 0.9};
///
/// A quantized network learns most from the float network that it was made of: the answers of that say how
/// sure it was of each class, and hold no more of the training data than it had learnt already.

#include <memory>
#include <string>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq {

class Module;

/// What a run is told of its teacher.
struct DistillationOptions {
  /// The network whose outputs are followed, null for none: of the same samples and the same outputs as the
  /// one that is trained, on any device. It runs in evaluation mode, and is not changed but moved to the
  /// device of the run.
  std::shared_ptr<Module> teacher = nullptr;
  std::string kind = "kl";  ///< of `distillation_kinds`
  double temperature = 2;   ///< of "kl", above 0: larger ones tell small probabilities apart
  /// The share of the teacher in the loss, 0 to 1: the labels have the rest, none by default.
  double weight = 1;
};

/// "kl" for outputs of classes, [N, C, ..] along C; "mse" for numbers, and for several labels a sample.
[[nodiscard]] const std::vector<std::string>& distillation_kinds();

/// How far outputs are from those of the teacher, rank 0:
///
/// - "kl": the mean over all but the axis of classes of T^2 * sum_c p_c * (log p_c - log q_c), p and q the
///   softmax of the teacher's outputs and these, both over T: gradients do not shrink where T grows;
/// - "mse": the mean of (y - t)^2 over all elements.
///
/// The teacher takes no gradient. Throws ArgumentError for shapes that differ, an unknown kind, naming the
/// nearest, and numbers out of range.
[[nodiscard]] Variable distillation_loss(const Variable& outputs, const Tensor& teacher,
                                         const DistillationOptions& options);

/// Throws ArgumentError for options that `distillation_loss` throws for, and a weight out of range.
void check(const DistillationOptions& options);

}  // namespace fq
