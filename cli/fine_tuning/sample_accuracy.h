#pragma once

/// How often a network is right on some of its training samples: enough to tell what works from what does
/// not.

#include <memory>
#include <optional>

#include "fakequant/network/network.h"
#include "fakequant/train/data/dataset.h"

namespace fq::cli {

/// Of up to 512 samples, 0 to 1.
struct SampleAccuracy {
  double in_float = 0;   ///< with quantizers switched off
  double quantized = 0;  ///< as it stands; the same where quantizers have no ranges
  double chance = 0;     ///< of always answering the most frequent class
  std::int64_t images = 0;

  /// Whether most of what the float network knows is lost: less than a quarter of its way from chance is
  /// left.
  [[nodiscard]] bool near_chance() const;
  /// "87.1 % of 512 training samples right, 99.8 % in float".
  [[nodiscard]] std::string text() const;
};

/// Nothing where samples have no labels of one class each. The network stays as it was.
[[nodiscard]] std::optional<SampleAccuracy> sample_accuracy(const Network& network,
                                                            const std::shared_ptr<const Dataset>& data);

/// Warns where fine-tuning left less than there was, or not much more than chance.
void warn_of_loss(const SampleAccuracy& before, const SampleAccuracy& after, const std::string& command);
/// Warns where the network is near chance after calibration, telling what to do about it.
void warn_near_chance(const SampleAccuracy& found, const Network& network, const std::string& command);

}  // namespace fq::cli
