#pragma once

/// Makes quantizers from the merged fields of a config.

#include <memory>
#include <string>
#include <vector>

#include "fakequant/layers/config/detail/merged_rules.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/detail/placement.h"
#include "fakequant/layers/detail/target_engine.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// Makes the quantizers of a config, without ranges. Each function throws ArgumentError, with the place of
/// the rule, for fields that do not fit each other.
class QuantizerMaker {
 public:
  /// `config` must outlive this object.
  explicit QuantizerMaker(const QuantConfig& config)
      : config_(config), engine_(target_engine(config.target)) {}

  /// Returns a quantizer, or several quantizers in sequence.
  [[nodiscard]] std::shared_ptr<TensorQuantizer> make(const MergedRules& fields,
                                                      const std::string& name) const;
  /// Returns the quantizer of a weight whose channels lie along `axis`, -1 for none. A preset's rule that
  /// keeps one axis means `axis`.
  [[nodiscard]] std::shared_ptr<TensorQuantizer> weight(MergedRules fields, const std::string& name,
                                                        int axis) const;
  /// Returns the quantizer of an activation. The target chooses its sign and storage. Adds a warning if the
  /// user's sign conflicts with the target.
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
