#pragma once

/// Damage and scores as JSON.

#include <nlohmann/json.hpp>

#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq::detail {

/// null for what is not a finite number.
[[nodiscard]] nlohmann::ordered_json finite_or_null(double value);
[[nodiscard]] nlohmann::ordered_json damage_json(const Damage& damage);
[[nodiscard]] nlohmann::ordered_json score_json(const Evaluation& score);

}  // namespace fq::detail
