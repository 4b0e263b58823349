#include "fakequant/train/ptq/detail/input_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/train/ptq/detail/patches.h"

namespace fq::ptq {

InputSums::InputSums(const WeightedLayer& layer, const StatisticsOptions& options)
    : layer_(layer),
      positions_(options.positions),
      largest_(static_cast<std::size_t>(layer.channels()), 0.0f),
      magnitudes_(layer.channels()),
      gram_(options.gram ? layer.groups() * layer.columns() * layer.columns() : 0) {}

void InputSums::add(const Tensor& x) {
  if (x.numel() == 0) return;
  add_channels(x);
  if (gram_.size() > 0) add_gram(x);
}

/// Channels along axis 1 of images, along the last of rows.
void InputSums::add_channels(const Tensor& x) {
  const std::int64_t channels = layer_.channels(),
                     inner = layer_.linear() ? 1 : numel(x.shape()) / x.dim(0) / channels;
  const std::int64_t outer = x.numel() / channels / inner;
  std::vector<double> sums(largest_.size(), 0.0);
  const auto* values = x.data<float>();
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::size_t c = 0; c < sums.size(); ++c)
      for (std::int64_t i = 0; i < inner; ++i) {
        const float magnitude = std::abs(*values++);
        largest_[c] = std::max(largest_[c], magnitude);
        sums[c] += double(magnitude);
      }
  values_ += outer * inner;
  if (!magnitudes_.add(sums))
    throw NumericError(fmt::format("[ptq] the input of '{}' has a NaN or an infinity", layer_.path));
}

void InputSums::add_gram(const Tensor& x) {
  std::vector<float> products;
  products.reserve(static_cast<std::size_t>(gram_.size()));
  std::int64_t rows = 0;
  for (std::int64_t g = 0; g < layer_.groups(); ++g) {
    const Variable columns(patches(layer_, x, g, positions_));
    const Tensor product = ops::linear(columns, columns).tensor();
    products.insert(products.end(), product.data<float>(), product.data<float>() + product.numel());
    rows = columns.dim(1);
  }
  rows_ += rows;
  if (!gram_.add(products))
    throw NumericError(fmt::format("[ptq] squares of the input of '{}' are beyond f32", layer_.path));
}

std::vector<Tensor> InputSums::mean_gram(std::int64_t rows) const {
  const double share = 1.0 / double(std::max<std::int64_t>(1, rows));
  const auto sums = gram_.values();
  const auto* sum = sums.data();
  std::vector<Tensor> out;
  for (std::int64_t g = 0; g < layer_.groups(); ++g) {
    out.push_back(Tensor::empty({layer_.columns(), layer_.columns()}));
    auto* to = out.back().mutable_data<float>();
    for (std::int64_t i = 0; i < out.back().numel(); ++i) to[i] = static_cast<float>(*sum++ * share);
  }
  return out;
}

InputStatistics InputSums::merged(Communicator& ranks) {
  std::vector<std::int64_t> bits, counts{values_, rows_};
  for (const float v : largest_) bits.push_back(std::bit_cast<std::int32_t>(v));  // in the order of floats
  ranks.max(bits);
  ranks.sum(counts);
  magnitudes_.merge(ranks);
  InputStatistics out{.largest = {}, .magnitudes = magnitudes_.values(), .values = counts[0], .gram = {}};
  for (const auto v : bits) out.largest.push_back(std::bit_cast<float>(static_cast<std::int32_t>(v)));
  if (gram_.size() == 0) return out;
  gram_.merge(ranks);
  out.gram = mean_gram(counts[1]);
  return out;
}

}  // namespace fq::ptq
