#pragma once

/// SequentialQuantizer: several quantizers in sequence.
///
///     std::vector<std::shared_ptr<TensorQuantizer>> parts;
///     parts.push_back(std::make_shared<TensorQuantizer>(
///         QuantDescriptor({.num_bits = 4, .block_sizes = {.lengths = {{-1, 128}}}})));
///     parts.push_back(std::make_shared<TensorQuantizer>(QuantDescriptor({.num_bits = {4, 3}})));
///     SequentialQuantizer w4a8(std::move(parts));

#include <memory>
#include <vector>

#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq {

/// y = q_n(.. q_1(x)). W4A8 of ModelOpt stores weights in this way: blocks of INT4, then E4M3 per tensor.
///
/// It replaces a single quantizer. The parts are its children "0", "1", .., with ranges, switches and files
/// of their own. Each part may be disabled. Each part observes the output of its predecessor, or the input if
/// no predecessor quantizes. In `deployed` the codes come from the last part. In a config, a rule with
/// `sequence` makes it.
class SequentialQuantizer : public TensorQuantizer {
 public:
  /// Throws ArgumentError for an empty list, a null part, and a part that gives codes but is not the last.
  explicit SequentialQuantizer(std::vector<std::shared_ptr<TensorQuantizer>> parts);

  [[nodiscard]] std::string type() const override { return "sequential_quantizer"; }
  [[nodiscard]] std::string describe() const override;
  /// Returns the parts in order; they belong to this quantizer.
  [[nodiscard]] std::vector<TensorQuantizer*> parts() const;
  /// Returns false: a part quantizes the output of its predecessor.
  [[nodiscard]] bool keeps_weight(const Variable& w) const override;
  Variable weight(const Variable& w) override;

 protected:
  Variable forward(const Variable& x) override;
  using TensorQuantizer::forward;

 private:
  std::vector<Child<TensorQuantizer>> parts_;
};

/// Returns the parts of a SequentialQuantizer, or the quantizer itself as its only part.
[[nodiscard]] std::vector<TensorQuantizer*> quantizer_parts(TensorQuantizer& quantizer);
/// Returns the part that gives the codes: the last enabled part. If every part is disabled, returns the last
/// one.
[[nodiscard]] TensorQuantizer& coding_part(TensorQuantizer& quantizer);

}  // namespace fq
