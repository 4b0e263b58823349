#pragma once

/// Passes over data with quantizers that observe but do not quantize.

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

/// Puts the model into evaluation mode with quantizers that do not quantize, until the end of the block. Only
/// the quantizers given to `observe` observe.
class ObserverScope {
 public:
  using Show = std::function<void(const Tensor&)>;

  explicit ObserverScope(Module& model);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;

  /// Calls `show` with each tensor that reaches the quantizer, once for each batch, even if several layers
  /// read the tensor.
  void observe(TensorQuantizer& quantizer, Show show);
  /// Runs the model over the first `limit` samples of an epoch (0: all samples). Returns the number of
  /// samples. Observers do not see the padding of the mask. Throws ArgumentError for samples of another
  /// shape. Errors of observers name the batch.
  std::int64_t run(DataLoader& data, std::int64_t limit, const BatchMask& mask = {});
  /// Returns the number of tensors that had the positions of the mask.
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
  std::map<const TensorQuantizer*, std::vector<std::weak_ptr<Node>>> seen_;  // tensors seen in this batch
};

}  // namespace fq::detail
