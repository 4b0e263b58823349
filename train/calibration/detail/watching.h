#pragma once

/// The passes of calibration.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/data/loader.h"

namespace fq::detail {

/// While it lives the model is in evaluation mode, no quantizer quantizes, and only those of `observe` watch;
/// then all is as before. Tied to its block.
class Watching {
 public:
  using Show = std::function<void(const Tensor&)>;

  explicit Watching(Module& model);
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  /// Every tensor that reaches the quantizer is shown once a batch, however many layers read it.
  void observe(TensorQuantizer& quantizer, Show show);
  /// Runs the model over the first `limit` samples of an epoch (0: all of them) and returns how many there
  /// were. Throws what observers throw, with the batch; ArgumentError for samples of another shape. Observers
  /// do not see the padding that the mask has.
  std::int64_t run(DataLoader& data, std::int64_t limit, const BatchMask& mask = {});
  /// How many tensors had the positions of the mask.
  [[nodiscard]] std::int64_t masked() const noexcept { return masked_; }

 private:
  struct Before {
    TensorQuantizer* quantizer;
    bool observing, quantizing;
  };

  Module& model_;
  EvaluationMode mode_;
  std::int64_t masked_ = 0;
  std::vector<Before> before_;
  std::map<const TensorQuantizer*, std::vector<std::weak_ptr<Node>>> seen_;  // in this batch
};

}  // namespace fq::detail
