#include "fakequant/train/ptq/detail/soft_rounding.h"

#include <algorithm>
#include <cmath>

#include "fakequant/train/ptq/detail/flip_roundings.h"

namespace fq::ptq {
namespace {

constexpr float kStretch = 1.2f, kShift = -0.1f;
constexpr double kPowerLeftOut = 1e-4;

float sigmoid(float v) { return 1.0f / (1.0f + std::exp(-v)); }
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

}  // namespace

SoftRounding::SoftRounding(const WeightedLayer& layer, const WeightGrid& grid,
                           const InputStatistics& statistics)
    : layer_(layer),
      grid_(grid),
      statistics_(statistics),
      floors_(grid.scales.size(), 0.0f),
      lowest_(grid.scales.size()),
      h_(grid.scales.size(), 0.0f),
      slopes_(grid.scales.size(), 0.0f),
      row_factors_(row_errors(layer, statistics, grid.rounding_errors(layer.weight.tensor()))) {
  for (const Tensor& gram : statistics.gram) grams_.emplace_back(gram, kPowerLeftOut);
  for (double& factor : row_factors_) factor = factor > 0 ? double(layer.columns()) / factor : 0;
  Tensor start = Tensor::zeros({layer.rows(), layer.columns()});
  auto* v = start.mutable_data<float>();
  const Tensor weight = layer.weight.tensor();
  const auto* w = weight.data<float>();
  for (std::size_t i = 0; i < floors_.size(); ++i) {
    lowest_[i] = -w[i];
    if (grid.scales[i] == 0.0f) continue;
    const float position = std::clamp(w[i] / grid.scales[i], grid.lower, grid.upper);
    floors_[i] = std::min(std::floor(position), grid.upper - 1);
    lowest_[i] = grid.value(i, floors_[i]) - w[i];
    v[i] = inverse_rectified(std::min(position - floors_[i], 0.999f));
    open_.push_back(i);
  }
  v_ = Variable(start, true);
}

std::size_t SoftRounding::relax() {
  const auto* v = v_.tensor().data<float>();
  std::erase_if(open_, [&](std::size_t i) {
    const float s = sigmoid(v[i]), h = s * kStretch + kShift;
    const bool cut = h <= 0.0f || h >= 1.0f;
    h_[i] = std::clamp(h, 0.0f, 1.0f);
    slopes_[i] = cut ? 0.0f : kStretch * s * (1.0f - s);
    return cut;
  });
  return open_.size();
}

Tensor SoftRounding::products() const {
  Tensor off = Tensor::empty(v_.shape()), out = Tensor::empty(v_.shape());
  auto* d = off.mutable_data<float>();
  for (std::size_t i = 0; i < h_.size(); ++i) d[i] = lowest_[i] + h_[i] * grid_.scales[i];
  const std::int64_t rows = layer_.rows() / layer_.groups();
  for (std::int64_t g = 0; g < layer_.groups(); ++g) {
    const GramProduct& product = grams_[static_cast<std::size_t>(g)];
    out.slice(g * rows, (g + 1) * rows).copy_from(product(off.slice(g * rows, (g + 1) * rows)));
  }
  return out;
}

Tensor SoftRounding::gradient(float regularization, float beta) const {
  const Tensor product = products();
  const auto* p = product.data<float>();
  Tensor out = Tensor::zeros(product.shape());
  auto* g = out.mutable_data<float>();
  const auto columns = static_cast<std::size_t>(layer_.columns());
  for (const std::size_t i : open_) {
    float slope = 2.0f * p[i] * grid_.scales[i] * static_cast<float>(row_factors_[i / columns]);
    if (regularization > 0) slope += regularization * regularization_slope(h_[i], beta);
    g[i] = slope * slopes_[i];
  }
  return out;
}

Tensor SoftRounding::chosen() const {
  std::vector<bool> up;
  for (const float h : h_) up.push_back(h >= 0.5f);
  flip_roundings(layer_, grid_, statistics_, floors_, up);
  Tensor out = Tensor::empty(v_.shape());
  auto* to = out.mutable_data<float>();
  for (std::size_t i = 0; i < up.size(); ++i) to[i] = grid_.value(i, floors_[i] + (up[i] ? 1.0f : 0.0f));
  return out;
}

}  // namespace fq::ptq
