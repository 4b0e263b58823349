#include "fakequant/train/sensitivity/detail/damage_json.h"

#include <cmath>

#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq {
namespace detail {

using nlohmann::ordered_json;

ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json damage_json(const Damage& damage) {
  return {{"loss_change", finite_or_null(damage.loss_change)},
          {"accuracy_change", finite_or_null(damage.accuracy_change)},
          {"divergence", finite_or_null(damage.divergence)}};
}

ordered_json score_json(const Evaluation& score) {
  return {
      {"loss", score.loss}, {"accuracy", score.accuracy}, {"correct", score.correct}, {"count", score.count}};
}

}  // namespace detail

nlohmann::ordered_json SensitivityReport::to_json() const {
  nlohmann::ordered_json out{{"kind", "fakequant-sensitivity"}, {"version", 1}, {"samples", samples}};
  out["float"] = detail::score_json(reference);
  out["layer_runs"] = layer_runs;
  out["pass_runs"] = pass_runs;
  out["layers"] = nlohmann::ordered_json::array();
  for (const auto& layer : layers) {
    auto& entry = out["layers"].emplace_back(nlohmann::ordered_json{{"layer", layer.layer},
                                                                    {"type", layer.type},
                                                                    {"format", layer.format},
                                                                    {"weights", layer.weights},
                                                                    {"bits", layer.bits}});
    entry.update(detail::damage_json(layer.damage));
  }
  return out;
}

}  // namespace fq
