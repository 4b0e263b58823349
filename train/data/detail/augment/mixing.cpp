#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/detail/augment/sample.h"

namespace fq {
namespace {

using detail::Draws;

constexpr std::string_view kMix = "mix";

/// Returns the logarithm of a gamma-distributed number with shape alpha (Marsaglia and Tsang, ACM TOMS 26/3).
double log_gamma_draw(Draws& draws, double alpha) {
  if (alpha < 1) {
    // Gamma(alpha) = Gamma(alpha + 1) * U^(1 / alpha). Logarithms, because values for small alpha underflow.
    const double tail = std::log(1 - draws.uniform()) / alpha;
    return log_gamma_draw(draws, alpha + 1) + tail;
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = draws.normal(), v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1 - draws.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

double beta_draw(Draws& draws, double alpha) {
  // Beta(a, a) = X / (X + Y) for two Gamma(a) draws.
  const double one = log_gamma_draw(draws, alpha), other = log_gamma_draw(draws, alpha);
  return 1 / (1 + std::exp(other - one));
}

/// A span of an axis around a random centre, clamped to the axis.
struct Stretch {
  std::int64_t begin, end;

  Stretch(Draws& draws, std::int64_t size, double share) {
    const auto centre = static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(size)));
    const auto half = static_cast<std::int64_t>(0.5 * share * static_cast<double>(size));
    begin = std::max<std::int64_t>(centre - half, 0);
    end = std::min(centre + half, size);
  }
};

/// Copies a rectangle, or a span, of `other` into `own`. Returns the share of `own` that remains.
double paste(Draws& draws, double lambda, const Shape& shape, const float* other, float* own) {
  const bool image = shape.size() == 3;
  const std::int64_t height = image ? shape[1] : 1, width = shape.back();
  // A rectangle of the share 1 - lambda of the area; a span of the share 1 - lambda of the length.
  const double side = image ? std::sqrt(1 - lambda) : 1 - lambda;
  const Stretch x(draws, width, side);
  Stretch y = x;
  if (image)
    y = Stretch(draws, height, side);
  else
    y.begin = 0, y.end = 1;
  for (std::int64_t c = 0; c < shape[0]; ++c)
    for (std::int64_t v = y.begin; v < y.end; ++v) {
      const std::int64_t line = (c * height + v) * width;
      std::copy(other + line + x.begin, other + line + x.end, own + line + x.begin);
    }
  // The share is measured after clamping, as in the authors' code: labels are mixed by the pixels that were
  // pasted.
  const auto part = static_cast<double>((x.end - x.begin) * (y.end - y.begin));
  return 1 - part / static_cast<double>(height * width);
}

void blend(double lambda, std::int64_t count, const float* other, float* own) {
  const auto share = static_cast<float>(lambda);
  for (std::int64_t i = 0; i < count; ++i) own[i] = share * own[i] + (1 - share) * other[i];
}

/// Returns the share of each sample that remains.
std::vector<double> mix_samples(Tensor& x, std::span<const std::int64_t> keys, const AugmentOptions& options,
                                std::uint64_t seed, std::int64_t epoch) {
  // Each sample is mixed with the unchanged sample before it, which may already be overwritten in x.
  const Tensor old = x.clone();
  const Shape shape(x.shape().begin() + 1, x.shape().end());
  const std::int64_t each = numel(shape), count = x.dim(0);
  auto* own = x.mutable_data<float>();
  std::vector<double> left;
  for (std::int64_t i = 0; i < count; ++i, own += each) {
    const float* other = old.data<float>() + (i + count - 1) % count * each;
    Draws draws = detail::AugmentedSample::make_draws("mix", seed, epoch, keys[static_cast<std::size_t>(i)]);
    // Drawn in any case, so that the following numbers do not depend on the options.
    const bool first = draws.symmetric() < 0;
    const bool by_sum = options.cutmix == 0 || (options.mixup != 0 && first);
    const double lambda = beta_draw(draws, by_sum ? options.mixup : options.cutmix);
    left.push_back(by_sum ? lambda : paste(draws, lambda, shape, other, own));
    if (by_sum) blend(lambda, each, other, own);
  }
  return left;
}

/// Returns one-hot rows: 1 at the class of each label.
Tensor one_hot_rows(const Tensor& labels, std::int64_t classes) {
  Tensor out = Tensor::zeros({labels.dim(0), classes});
  const auto all = labels.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < all.size(); ++i) {
    FQ_CHECK(0 <= all[i] && all[i] < classes, kMix, "label {} is not 0 to {}", all[i], classes - 1);
    out.mutable_data<float>()[static_cast<std::int64_t>(i) * classes + all[i]] = 1;
  }
  return out;
}

}  // namespace

void mix(Batch& batch, std::span<const std::int64_t> keys, const AugmentOptions& options, std::uint64_t seed,
         std::int64_t epoch, std::int64_t classes) {
  if (!options.mixes()) return;
  FQ_CHECK(batch.x.defined() && batch.x.dtype() == DType::f32 && batch.x.rank() >= 2 &&
               static_cast<std::int64_t>(keys.size()) == batch.x.dim(0),
           kMix, "the samples are {}, for {} keys: use f32 [N, ..]", batch.x.describe(), keys.size());
  FQ_CHECK(options.cutmix == 0 || batch.x.rank() == 3 || batch.x.rank() == 4, kMix,
           "the samples are {}: cutmix is of images and signals", batch.x.describe());
  FQ_CHECK(batch.y.defined() && batch.y.rank() <= 2, kMix,
           "the labels are {}: mixing needs classes or numbers per sample, [N] or [N, K]",
           batch.y.describe());
  const bool of_classes = classes > 0 && batch.y.dtype() == DType::i64 && batch.y.rank() == 1;
  const Tensor labels = of_classes ? one_hot_rows(batch.y, classes) : batch.y.to(DType::f32);
  batch.y = labels.clone();
  const auto left = mix_samples(batch.x, keys, options, seed, epoch);
  const std::int64_t count = labels.dim(0), each = labels.numel() / count;
  for (std::int64_t i = 0; i < count; ++i)
    blend(left[static_cast<std::size_t>(i)], each, labels.data<float>() + (i + count - 1) % count * each,
          batch.y.mutable_data<float>() + i * each);
}

}  // namespace fq
