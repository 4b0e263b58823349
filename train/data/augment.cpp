#include "fakequant/train/data/augment.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/detail/augment/operations.h"

namespace fq {
namespace {

using detail::AugmentedSample;
using detail::operations;
using detail::SampleKind;

constexpr std::string_view kAugment = "augment";

std::string_view kind_text(SampleKind kind) {
  switch (kind) {
    case SampleKind::image:
      return "images [C, H, W]";
    case SampleKind::signal:
      return "signals [C, L]";
    case SampleKind::row:
      return "rows of features";
    case SampleKind::ids:
      return "token ids";
    case SampleKind::other:
      break;
  }
  return "no images, signals or rows";
}

std::vector<std::string> change_names(SampleKind kind) {
  std::vector<std::string> names;
  for (const auto& operation : operations())
    if (operation.make.of(kind) != nullptr) names.emplace_back(operation.change.name);
  return names;
}

void check_number(const AugmentNumber& number, double value) {
  FQ_CHECK(number.lowest <= value && value <= number.highest, kAugment, "{} is {}: use {} to {}", number.name,
           value, number.lowest, number.highest);
  // All numbers are doubles in the options; counts and pixels must be whole.
  FQ_CHECK(!number.whole || value == std::floor(value), kAugment, "{} is {}: use a whole number", number.name,
           value);
}

void check_samples(const Tensor& samples, std::size_t keys, std::size_t background, std::size_t white) {
  FQ_CHECK(samples.defined() && samples.rank() >= 2 &&
               (samples.dtype() == DType::f32 || samples.dtype() == DType::i64),
           kAugment, "the samples are {}: use f32 [N, ..], or i64 of token ids", samples.describe());
  FQ_CHECK(static_cast<std::int64_t>(keys) == samples.dim(0), kAugment, "there are {} keys for {} samples",
           keys, samples.dim(0));
  FQ_CHECK(samples.dtype() == DType::i64 || static_cast<std::int64_t>(background) == samples.dim(1), kAugment,
           "{} background values for {} channels", background, samples.dim(1));
  FQ_CHECK(white == 0 || white == background, kAugment, "{} values of white for {} of the background", white,
           background);
}

/// Applies the changes of `options`. Changes that share a function, like the parts of one warp, run once.
void change(AugmentedSample& sample, SampleKind kind, const AugmentOptions& options) {
  // Rows of the table with one function are neighbours, so that a comparison with the last one is enough.
  detail::Change last = nullptr;
  for (const auto& operation : operations()) {
    const auto make = operation.make.of(kind);
    if (!operation.on(options) || make == last) continue;
    make(sample, options);
    last = make;
  }
}

}  // namespace

std::vector<AugmentChange> augment_changes() {
  std::vector<AugmentChange> changes;
  for (const auto& operation : operations()) changes.push_back(operation.change);
  return changes;
}

bool AugmentOptions::any() const noexcept {
  return std::ranges::any_of(operations(), [this](const auto& operation) { return operation.on(*this); });
}

void check(const AugmentOptions& options) {
  for (const auto& operation : operations())
    for (const auto& number : operation.change.numbers) check_number(number, options.*number.value);
  FQ_CHECK(options.resized_crop <= options.resized_crop_most && options.ratio_low <= options.ratio_high,
           kAugment, "resized_crop is {} to {} of ratios {} to {}: use the smaller one first",
           options.resized_crop, options.resized_crop_most, options.ratio_low, options.ratio_high);
}

void check(const AugmentOptions& options, const Shape& sample, bool token_ids) {
  check(options);
  const auto kind = detail::sample_kind(sample, token_ids);
  for (const auto& operation : operations()) {
    if (!operation.on(options)) continue;
    const auto* name = operation.change.name;
    // The message lists the changes that this kind of sample has.
    const auto there = change_names(kind);
    FQ_CHECK(operation.make.of(kind) != nullptr, kAugment, "samples {} are {}, which have no {}: {}",
             to_string(sample), kind_text(kind), name,
             there.empty() ? "they are not augmented" : fmt::format("use {}", fmt::join(there, ", ")));
    // Hue, saturation and grey are defined for three channels.
    FQ_CHECK(!operation.colours || sample[0] == 3, kAugment,
             "samples {} are images of {} channels: {} is of red, green and blue", to_string(sample),
             sample[0], name);
  }
}

void augment(Tensor& samples, std::span<const std::int64_t> keys, const AugmentOptions& options,
             std::uint64_t seed, std::int64_t epoch, const std::vector<float>& background,
             const std::vector<float>& white) {
  check_samples(samples, keys.size(), background.size(), white.size());
  const Shape shape(samples.shape().begin() + 1, samples.shape().end());
  const bool ids = samples.dtype() == DType::i64;
  // `check` has rejected operations that do not support the kind, so that `make` is not null below.
  check(options, shape, ids);
  const auto kind = detail::sample_kind(shape, ids);
  // Without `white`, pixels are expected from the background to 1.
  const std::vector<float> ones(background.size(), 1.0f);
  auto* floats = ids ? nullptr : samples.mutable_data<float>();
  auto* tokens = ids ? samples.mutable_data<std::int64_t>() : nullptr;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    // samples: [N, ..], row-major
    const auto at = static_cast<std::int64_t>(i) * numel(shape);
    AugmentedSample sample{.shape = shape,
                           .black = background,
                           .white = white.empty() ? ones : white,
                           .seed = seed,
                           .epoch = epoch,
                           .key = keys[i],
                           .values = ids ? nullptr : floats + at,
                           .ids = ids ? tokens + at : nullptr};
    change(sample, kind, options);
  }
}

}  // namespace fq
