#pragma once

/// How much quantization changes what a network says.

#include "fakequant/train/loop/evaluate.h"

namespace fq {

/// Of a network against itself in float, on the same data: its value minus that in float. Without labels the
/// first two are NaN.
struct Damage {
  double loss_change = 0;      ///< of the mean cross-entropy; negative where quantization helps
  double accuracy_change = 0;  ///< of the share that is right, -1 to 1; negative where quantization hurts
  double divergence = 0;       ///< mean over samples of KL(softmax(float logits) || softmax(logits)), nats
};

/// By which number damage is compared.
enum class DamageScore { loss, divergence };

}  // namespace fq
