#include "fakequant/train/data/detail/class_draws.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/detail/random.h"

namespace fq::detail {
namespace {

constexpr std::uint64_t kClassSeed = 0x636c617373;  // separates the draws from shuffling
constexpr std::string_view kSample = "data_loader";

std::vector<std::int64_t> class_sizes(const Tensor& labels, std::int64_t classes) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(classes), 0);
  for (const auto label : labels.to_vector<std::int64_t>())
    if (0 <= label && label < classes) ++sizes[static_cast<std::size_t>(label)];
  return sizes;
}

void check_weights(const std::vector<double>& weights, const std::vector<std::int64_t>& sizes) {
  FQ_CHECK(weights.size() == sizes.size(), kSample,
           "there are {} class_weights, and {} classes: use one weight per class", weights.size(),
           sizes.size());
  for (std::size_t c = 0; c < weights.size(); ++c) {
    FQ_CHECK(std::isfinite(weights[c]) && weights[c] >= 0, kSample,
             "class_weights has {} for class {}: use 0 or more", weights[c], c);
    FQ_CHECK(weights[c] == 0 || sizes[c] > 0, kSample,
             "class_weights has {} for class {}, which has no samples to draw: use 0", weights[c], c);
  }
  FQ_CHECK(std::ranges::any_of(weights, [](double w) { return w > 0; }), kSample,
           "all class_weights are 0: use at least one above 0");
}

}  // namespace

// Scales the weights so that their sum is the number of samples: an epoch keeps its length.
ClassDraws::ClassDraws(const Tensor& labels, const std::vector<double>& weights)
    : samples_(weights.size()), shares_(weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& share : shares_) share *= static_cast<double>(labels.numel()) / sum;
  std::int64_t sample = 0;
  for (const auto label : labels.to_vector<std::int64_t>()) {
    if (0 <= label && label < std::ssize(samples_))
      samples_[static_cast<std::size_t>(label)].push_back(sample);
    ++sample;
  }
}

std::vector<std::int64_t> ClassDraws::counts(std::uint64_t seed, std::int64_t epoch) const {
  // Largest remainder method: each class gets the whole part of its share, then the rest is divided.
  std::vector<std::int64_t> counts, order;
  std::int64_t missing = 0;
  for (const auto& samples : samples_) missing += std::ssize(samples);
  for (std::size_t c = 0; c < shares_.size(); ++c) {
    counts.push_back(static_cast<std::int64_t>(shares_[c]));
    missing -= counts.back();
    if (shares_[c] > 0) order.push_back(static_cast<std::int64_t>(c));
  }
  Draws(seed ^ kClassSeed, static_cast<std::uint64_t>(epoch), shares_.size()).shuffle(order);
  const auto part = [&](std::int64_t c) {
    return shares_[static_cast<std::size_t>(c)] - std::floor(shares_[static_cast<std::size_t>(c)]);
  };
  // Largest remainders get the missing draws. The shuffle breaks ties.
  std::ranges::stable_sort(order, std::greater<>(), part);
  for (std::size_t i = 0; missing > 0; i = (i + 1) % order.size(), --missing)
    ++counts[static_cast<std::size_t>(order[i])];
  return counts;
}

std::vector<std::int64_t> ClassDraws::epoch_samples(std::uint64_t seed, std::int64_t epoch) const {
  const auto counts = this->counts(seed, epoch);
  std::vector<std::int64_t> draws;
  for (std::size_t c = 0; c < samples_.size(); ++c) {
    auto samples = samples_[c];
    if (samples.empty()) continue;
    // Whole rounds have every sample of the class once. Only the rest is drawn, so that counts differ by one
    // at most.
    for (std::int64_t round = counts[c] / std::ssize(samples); round > 0; --round)
      draws.insert(draws.end(), samples.begin(), samples.end());
    Draws(seed ^ kClassSeed, static_cast<std::uint64_t>(epoch), c).shuffle(samples);
    draws.insert(draws.end(), samples.begin(), samples.begin() + counts[c] % std::ssize(samples));
  }
  // EpochOrder expects an ascending list and shuffles it.
  std::ranges::sort(draws);
  return draws;
}

std::optional<ClassDraws> class_draws(const Dataset& data, const LoaderOptions& options) {
  if (!options.balanced && options.class_weights.empty()) return std::nullopt;
  FQ_CHECK(!options.balanced || options.class_weights.empty(), kSample,
           "balanced and class_weights: use one of them");
  const Tensor labels = data.labels();
  FQ_CHECK(data.classes() > 0 && labels.defined() && labels.rank() == 1 && labels.dtype() == DType::i64,
           kSample, "{} needs one class for each sample, and the data has {}",
           options.balanced ? "balanced" : "class_weights",
           labels.defined()
               ? "labels " + to_string(labels.shape()) + " of " + std::string(name(labels.dtype()))
               : "no labels in memory");
  const auto sizes = class_sizes(labels, data.classes());
  std::vector<double> weights = options.class_weights;
  if (options.balanced)
    for (const auto size : sizes) weights.push_back(size > 0 ? 1 : 0);
  check_weights(weights, sizes);
  return ClassDraws(labels, weights);
}

}  // namespace fq::detail
