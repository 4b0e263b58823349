#include "fakequant/train/ptq/ada_round.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/check.h"
#include "fakequant/train/optimizer.h"
#include "fakequant/train/ptq/chosen_codes.h"

namespace fq::ptq {
namespace {

constexpr float kStretch = 1.2f, kShift = -0.1f;

float sigmoid(float v) { return 1.0f / (1.0f + std::exp(-v)); }
float rectified(float v) { return std::clamp(sigmoid(v) * kStretch + kShift, 0.0f, 1.0f); }
/// 0 where h is cut.
float rectified_slope(float v) {
  const float s = sigmoid(v), h = s * kStretch + kShift;
  return h > 0.0f && h < 1.0f ? kStretch * s * (1.0f - s) : 0.0f;
}
/// The V with h(V) = share, 0 <= share < 1.
float inverse_rectified(float share) {
  const float s = (share - kShift) / kStretch;
  return std::log(s / (1.0f - s));
}

/// d/dh of 1 - |2h - 1|^beta.
float regularization_slope(float h, float beta) {
  const float away = 2.0f * h - 1.0f;
  return -2.0f * beta * std::copysign(std::pow(std::abs(away), beta - 1.0f), away);
}

class Rounding {
 public:
  Rounding(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics)
      : layer_(layer),
        grid_(grid),
        statistics_(statistics),
        weight_(layer.weight.tensor().to_vector<float>()),
        floors_(weight_.size(), 0.0f),
        row_factors_(row_errors(layer, statistics, grid.rounding_errors(layer.weight.tensor()))) {
    Tensor start = Tensor::zeros({layer.rows(), layer.columns()});
    auto* v = start.mutable_data<float>();
    for (std::size_t i = 0; i < weight_.size(); ++i) {
      if (grid.scales[i] == 0.0f) continue;
      const float position = std::clamp(weight_[i] / grid.scales[i], grid.lower, grid.upper);
      floors_[i] = std::min(std::floor(position), grid.upper - 1);
      v[i] = inverse_rectified(std::min(position - floors_[i], 0.999f));
    }
    for (double& factor : row_factors_) factor = factor > 0 ? double(layer.columns()) / factor : 0;
    v_ = Variable(start, true);
  }

  [[nodiscard]] const Variable& v() const noexcept { return v_; }

  /// Of the error, an average of 1 a weight for the nearest codes, and of the other term where its factor is
  /// not 0.
  [[nodiscard]] Tensor gradient(float regularization, float beta) const {
    const Tensor product = times_gram(layer_, statistics_, soft_errors());
    const auto *p = product.data<float>(), *v = values();
    Tensor out = Tensor::empty(product.shape());
    auto* g = out.mutable_data<float>();
    const auto columns = static_cast<std::size_t>(layer_.columns());
    for (std::size_t i = 0; i < weight_.size(); ++i) {
      float slope = 2.0f * p[i] * grid_.scales[i] * static_cast<float>(row_factors_[i / columns]);
      if (regularization > 0) slope += regularization * regularization_slope(rectified(v[i]), beta);
      g[i] = slope * rectified_slope(v[i]);
    }
    return out;
  }

  [[nodiscard]] Tensor chosen() const {
    Tensor out = Tensor::empty(v_.shape());
    auto* to = out.mutable_data<float>();
    for (std::size_t i = 0; i < weight_.size(); ++i)
      to[i] = grid_.value(i, floors_[i] + (rectified(values()[i]) >= 0.5f ? 1.0f : 0.0f));
    return out;
  }

 private:
  [[nodiscard]] const float* values() const { return v_.tensor().data<float>(); }

  [[nodiscard]] Tensor soft_errors() const {
    Tensor out = Tensor::empty(v_.shape());
    auto* d = out.mutable_data<float>();
    const auto* v = values();
    for (std::size_t i = 0; i < weight_.size(); ++i)
      d[i] = grid_.value(i, floors_[i] + rectified(v[i])) - weight_[i];
    return out;
  }

  const WeightedLayer& layer_;
  const WeightGrid& grid_;
  const InputStatistics& statistics_;
  std::vector<float> weight_, floors_;
  std::vector<double> row_factors_;
  Variable v_;
};

Tensor learned(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics,
               const AdaRoundOptions& options) {
  Rounding rounding(layer, grid, statistics);
  Variable v = rounding.v();
  Adam adam({{"v", v}}, {.learning_rate = options.learning_rate});
  const int warmup = static_cast<int>(options.warmup * options.iterations);
  for (int i = 0; i < options.iterations; ++i) {
    const double done = double(i - warmup) / std::max(1, options.iterations - warmup);
    const double beta = options.beta_start + (options.beta_end - options.beta_start) * done;
    v.set_grad(rounding.gradient(i < warmup ? 0.0f : static_cast<float>(options.regularization),
                                 static_cast<float>(beta)));
    adam.step();
  }
  return rounding.chosen();
}

}  // namespace

Report ada_round(Module& model, DataLoader& data, const AdaRoundOptions& options) {
  FQ_CHECK(options.iterations > 0, "ada_round", "{} iterations: use 1 or more", options.iterations);
  FQ_CHECK(options.warmup >= 0 && options.warmup <= 1, "ada_round", "a warmup of {}: use 0 to 1",
           options.warmup);
  FQ_CHECK(options.regularization >= 0 && options.beta_start >= 1 && options.beta_end >= 1, "ada_round",
           "a regularization of {} with beta {} to {}: use 0 or more, and 1 or more", options.regularization,
           options.beta_start, options.beta_end);
  return choose_codes(
      model, data, options.samples, "ada_round",
      [&](const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics) {
        return learned(layer, grid, statistics, options);
      });
}

}  // namespace fq::ptq
