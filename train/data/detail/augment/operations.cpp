#include "fakequant/train/data/detail/augment/operations.h"

namespace fq::detail {
namespace {

using O = AugmentOptions;

// Bounds of options: far above useful values, far below an overflow.
constexpr double kMany = 1e6, kMostPixels = 1 << 20;

/// Does nothing: mixing runs on the batch after all samples are changed.
void mixed_in_batch(AugmentedSample&, const AugmentOptions&) {}

AugmentChange probability(const char* name, double O::*value) {
  return {name, {{name, value, 0, 1}}, "PROBABILITY"};
}

// The order of the rows is the order of the changes: geometry, colours, noise, erasing, and mixing at the
// end. The functions, names and ranges of flags and messages come from here. A null function means that the
// kind of sample does not have the operation. The two booleans are `colours` and `pixels`.
const Operation kTable[] = {
    {{"resizedcrop",
      {{"resized_crop", &O::resized_crop, 0, 1},
       {"resized_crop_most", &O::resized_crop_most, 1e-6, 1},
       {"ratio_low", &O::ratio_low, 1e-3, 1e3},
       {"ratio_high", &O::ratio_high, 1e-3, 1e3}},
      "SHARE:SHARE:RATIO:RATIO"},
     {.image = change_by_resized_crop}},
    {{"crop", {{"crop", &O::crop, 0, kMostPixels, true}}, "PIXELS"}, {.image = change_by_crop}},
    {{"shift", {{"shift", &O::shift, 0, kMany}}, "PIXELS"},
     {.image = change_by_warp, .signal = change_by_time_shift}},
    {{"rotate", {{"rotation", &O::rotation, 0, kMany}}, "DEGREES"}, {.image = change_by_warp}},
    {{"scale", {{"scale", &O::scale, 0, 0.999999}}, "SHARE"}, {.image = change_by_warp}},
    {{"shear", {{"shear", &O::shear, 0, kMany}}, "SHARE"}, {.image = change_by_warp}},
    {probability("hflip", &O::hflip), {.image = change_by_warp}},
    {probability("vflip", &O::vflip), {.image = change_by_vflip}},
    {{"randaugment",
      {{"randaugment", &O::randaugment, 0, 100, true},
       {"randaugment_magnitude", &O::randaugment_magnitude, 0, 30}},
      "COUNT:MAGNITUDE"},
     {.image = change_by_randaugment},
     false,
     true},
    {{"brightness", {{"brightness", &O::brightness, 0, 100}}, "SHARE"},
     {.image = change_brightness},
     false,
     true},
    {{"contrast", {{"contrast", &O::contrast, 0, 100}}, "SHARE"}, {.image = change_contrast}, false, true},
    {{"saturation", {{"saturation", &O::saturation, 0, 100}}, "SHARE"},
     {.image = change_saturation},
     true,
     true},
    {{"hue", {{"hue", &O::hue, 0, 0.5}}, "TURNS"}, {.image = change_hue}, true, true},
    {probability("greyscale", &O::greyscale), {.image = change_to_grey}, true, true},
    {{"blur", {{"blur", &O::blur, 0, 100}}, "SIGMA"}, {.image = change_by_blur}},
    {{"gain", {{"gain", &O::gain, 0, 0.999999}}, "SHARE"}, {.signal = change_by_gain}},
    {probability("reverse", &O::reverse), {.signal = change_by_reversal}},
    {{"timemask", {{"time_mask", &O::time_mask, 0, kMostPixels, true}}, "STEPS"},
     {.signal = change_by_time_mask}},
    {{"noise", {{"noise", &O::noise, 0, kMany}}, "SIGMA"},
     {.image = change_by_noise_of_pixels,
      .signal = change_by_noise,
      .row = change_by_noise,
      .other = change_by_noise}},
    {probability("drop", &O::drop), {.row = change_by_drop, .ids = change_by_drop}},
    {{"cutout", {{"cutout", &O::cutout, 0, kMostPixels, true}}, "PIXELS"}, {.image = change_by_cutout}},
    {{"mixup", {{"mixup", &O::mixup, 0, kMany}}, "ALPHA"},
     {.image = mixed_in_batch, .signal = mixed_in_batch, .row = mixed_in_batch, .other = mixed_in_batch}},
    {{"cutmix", {{"cutmix", &O::cutmix, 0, kMany}}, "ALPHA"},
     {.image = mixed_in_batch, .signal = mixed_in_batch}},
};

}  // namespace

std::span<const Operation> operations() { return kTable; }

Change Changes::of(SampleKind kind) const {
  switch (kind) {
    case SampleKind::image:
      return image;
    case SampleKind::signal:
      return signal;
    case SampleKind::row:
      return row;
    case SampleKind::ids:
      return ids;
    case SampleKind::other:
      return other;
  }
  return nullptr;
}

SampleKind sample_kind(const Shape& sample, bool token_ids) {
  if (token_ids) return SampleKind::ids;
  if (sample.size() == 3) return SampleKind::image;
  if (sample.size() == 2) return SampleKind::signal;
  return sample.size() == 1 ? SampleKind::row : SampleKind::other;
}

}  // namespace fq::detail
