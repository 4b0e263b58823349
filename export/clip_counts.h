#pragma once

/// How much of real data lies outside of the ranges of quantizers.

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

struct ClipCount {
  std::int64_t clipped = 0;  ///< values outside of the range: |v| > amax, or v < 0 of an unsigned format
  std::int64_t count = 0;    ///< values quantized
};
/// By the name of the quantizer.
using ClipCounts = std::map<std::string, ClipCount>;

/// Counts while it is installed (RecordScope) and the model runs in evaluation mode. Weights are counted
/// once, however many batches there are, and not where they are kept as codes (layers/quantizer/compress.h);
/// values that a pending ReLU sets to zero lie in the range. Quantizers of arithmetic `reference` give no
/// codes and are not counted.
class ClipCounter : public Recorder {
 public:
  explicit ClipCounter(Module& model);

  void on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
             Attributes attributes) override;
  [[nodiscard]] const ClipCounts& counts() const noexcept { return counts_; }

 private:
  std::set<std::string> weights_;
  ClipCounts counts_;
};

}  // namespace fq
