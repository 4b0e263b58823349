#pragma once

/// SequentialQuantizer: quantizers one after another.
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

/// y = q_n(.. q_1(x)): blocks of INT4, then E4M3 per tensor, is how W4A8 of ModelOpt keeps weights.
///
/// It stands where a quantizer stands; the parts are its children "0", "1", .. with ranges, switches and
/// files of their own, each of which may be off. Each observes what its predecessor gives, the input itself
/// while none quantizes. In `deployed` the codes are those of the last part. In a config it is a rule with
/// `sequence`.
class SequentialQuantizer : public TensorQuantizer {
 public:
  /// Throws ArgumentError for none, a null one, and one that gives codes but is not the last.
  explicit SequentialQuantizer(std::vector<std::shared_ptr<TensorQuantizer>> parts);

  [[nodiscard]] std::string type() const override { return "sequential_quantizer"; }
  [[nodiscard]] std::string describe() const override;
  /// The parts in their order; they belong to this quantizer.
  [[nodiscard]] std::vector<TensorQuantizer*> parts() const;
  Variable weight(const Variable& w) override;

 protected:
  Variable forward(const Variable& x) override;
  using TensorQuantizer::forward;

 private:
  std::vector<Child<TensorQuantizer>> parts_;
};

/// The parts of a SequentialQuantizer; any other quantizer is its own only part.
[[nodiscard]] std::vector<TensorQuantizer*> quantizer_parts(TensorQuantizer& quantizer);
/// The part that gives the codes: the last one that is enabled, or the last one.
[[nodiscard]] TensorQuantizer& coding_part(TensorQuantizer& quantizer);

}  // namespace fq
