#pragma once

/// The algorithms on weights and scales by name, as a QuantConfig has them.

#include <cstdint>
#include <memory>
#include <string>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/algorithms.h"

namespace fq::ptq {

struct AlgorithmEntry;
class AlgorithmOptions;

/// One that a config names, around calibration: `before` it come smoothquant, awq_lite and equalize, `after`
/// it awq_clip, gptq, adaround and bias_correction; awq_full is awq_lite before and awq_clip after. Options
/// by their names in algorithms.h (`alpha`, `alpha_step`, `lowest`, `step`, `damping`, `act_order`,
/// `iterations`, ..); ModelOpt's names `min_clip_ratio`, `shrink_step` and `perc_damp` are taken too.
class Algorithm {
 public:
  /// The config's weight_algorithm with its options; none does nothing. `samples` of each pass, 0 for all.
  /// Throws ArgumentError naming an option that it does not have, or one of another type.
  explicit Algorithm(const QuantConfig& config, std::int64_t samples = 0);

  /// As in the config; empty for none.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Whether `before` changes the model: what was collected with it as it is no longer counts.
  [[nodiscard]] bool runs_before() const noexcept;

  /// What its functions throw.
  Report before(Module& model, DataLoader& data) const;
  Report after(Module& model, DataLoader& data) const;

 private:
  std::string name_;
  std::shared_ptr<const AlgorithmEntry> entry_;
  std::shared_ptr<const AlgorithmOptions> options_;
};

}  // namespace fq::ptq
