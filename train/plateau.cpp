#include <cmath>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/detail/whole_number.h"
#include "fakequant/train/schedule.h"

namespace fq {
namespace {

constexpr double kThreshold = 1e-4;
constexpr std::string_view kPlateau = "plateau";

}  // namespace

Plateau::Plateau(double by, std::int64_t patience) : by_(by), patience_(patience) {
  FQ_CHECK(by > 0 && by < 1 && patience >= 0, kPlateau,
           "the factor is {} and the patience {}: use between 0 and 1, and 0 or more", by, patience);
}

double Plateau::update(double score) {
  const bool better = !std::isnan(score) && (!started_ || score > best_ + std::abs(best_) * kThreshold);
  if (better) {
    best_ = score;
    started_ = true;
  }
  waited_ = better ? 0 : waited_ + 1;
  if (waited_ <= patience_) return factor_;
  waited_ = 0;
  return factor_ *= by_;
}

StateDict Plateau::state_dict() const {
  StateDict out;
  out.set_attribute("best", best_);
  out.set_attribute("factor", factor_);
  out.set_attribute("waited", waited_);
  out.set_attribute("started", started_);
  return out;
}

void Plateau::load_state(const StateDict& state) {
  try {
    const double best = state.attribute("best").get<double>(),
                 factor = state.attribute("factor").get<double>();
    const bool started = state.attribute("started").get<bool>();
    waited_ = detail::whole_number(state, "waited", kPlateau);
    FQ_CHECK(std::isfinite(best) && factor > 0 && factor <= 1, kPlateau,
             "the state is damaged: a factor of {}", factor);
    best_ = best;
    factor_ = factor;
    started_ = started;
  } catch (const nlohmann::json::exception& error) {
    throw ArgumentError(fmt::format("[plateau] the state is damaged: {}", error.what()));
  }
}

}  // namespace fq
