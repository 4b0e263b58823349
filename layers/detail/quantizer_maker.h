#pragma once

/// From the merged fields of a config to quantizers.

#include <memory>
#include <string>
#include <vector>

#include "fakequant/layers/config/detail/merged_rules.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/detail/placement.h"
#include "fakequant/layers/detail/target_engine.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// Makes the quantizers of a config, without ranges. Each throws ArgumentError, with the place of the rule,
/// for fields that do not fit each other.
class QuantizerMaker {
 public:
  /// The config outlives it.
  explicit QuantizerMaker(const QuantConfig& config)
      : config_(config), engine_(target_engine(config.target)) {}

  /// A quantizer, or several one after another.
  [[nodiscard]] std::shared_ptr<TensorQuantizer> make(const MergedRules& fields,
                                                      const std::string& name) const;
  /// That of a weight whose channels lie along `axis`, -1 for none: rules that keep one axis mean this one.
  [[nodiscard]] std::shared_ptr<TensorQuantizer> weight(MergedRules fields, const std::string& name,
                                                        int axis) const;
  /// That of an activation, with its sign and storage by the target. Where a user's sign goes against the
  /// target, a warning is added.
  [[nodiscard]] std::shared_ptr<TensorQuantizer> input(const MergedRules& fields, const UsedTensor& tensor,
                                                       const std::string& name,
                                                       std::vector<std::string>& warnings) const;

 private:
  [[nodiscard]] std::shared_ptr<TensorQuantizer> make_one(const PartialQuantParams& fields,
                                                          const std::string& name) const;
  void set_algorithm(TensorQuantizer& quantizer, const PartialQuantParams& fields) const;
  [[nodiscard]] MergedRules with_sign(MergedRules fields, const UsedTensor& tensor, const std::string& name,
                                      std::vector<std::string>& warnings) const;

  const QuantConfig& config_;
  const TargetEngine& engine_;
};

}  // namespace fq::detail
