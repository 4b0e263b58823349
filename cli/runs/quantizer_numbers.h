#pragma once

/// What a run directory tells of an epoch beside its scores: ranges, clipping, where the time went.

#include <nlohmann/json.hpp>

#include "fakequant/cli/training.h"
#include "fakequant/core/profile.h"

namespace fq::cli {

/// Milliseconds by "forward", "backward", "quantize", "optimizer", "waiting for data", "other".
[[nodiscard]] nlohmann::ordered_json phases_of(const Profile& profile);
/// Some training samples, that clipping is looked at on; undefined for a network without quantizers.
[[nodiscard]] Tensor some_inputs(const Run& run);
/// Of each quantizer that is on and has a range: {"amax": its largest, "clipped": the share of elements of
/// `x` that it clips}; without "clipped" for weights, and where a quantizer is not calibrated or `x` is
/// undefined.
[[nodiscard]] nlohmann::ordered_json quantizers_of(Module& model, const Tensor& x);

}  // namespace fq::cli
