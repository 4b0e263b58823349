#pragma once

/// Float evaluation of a model with quantizers.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::ptq {

/// Switches the model to evaluation mode and its quantizers to pass-through, without observers, until the
/// scope ends. Quantizers with a pre_quant_scale still multiply their input by it.
class FloatScope {
 public:
  explicit FloatScope(Module& model);
  ~FloatScope();
  FloatScope(const FloatScope&) = delete;  // tied to its block
  FloatScope& operator=(const FloatScope&) = delete;

 private:
  struct State {
    TensorQuantizer* quantizer;
    bool observing, quantizing;
  };
  fq::detail::EvaluationMode evaluating_;
  std::vector<State> states_;
};

/// Returns the operator graph of the model in float.
[[nodiscard]] TraceGraph float_graph(Module& model, const Shape& input_shape);
/// Returns the input shape of a batch of one sample.
[[nodiscard]] Shape loader_input_shape(const DataLoader& data);

/// Returns `ranks`, or this process alone if `ranks` is null.
[[nodiscard]] std::shared_ptr<Communicator> ranks_or_one(std::shared_ptr<Communicator> ranks);
/// Runs epoch 0 of the data through the model, without a tape, up to `samples` images (0 for all). Each rank
/// runs its own batches. `recorder` observes the operators if it is not null. Returns the number of images.
/// Throws ArgumentError, with `function` as prefix, if there is no data or if the data is not the rank's
/// share. Throws NumericError with the batch.
std::int64_t run_batches(Module& model, DataLoader& data, std::int64_t samples, const Communicator& ranks,
                         Recorder* recorder, const std::string& function);

/// Throws ArgumentError if a quantizer already has a range, except a range fixed by its descriptor. The range
/// would be wrong after the algorithm changes weights and activations.
void check_uncalibrated(Module& model, const std::string& function);

}  // namespace fq::ptq
