#pragma once

/// A model as it computes in float, whatever quantizers it has.

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

/// While it lives the model is in evaluation mode and its quantizers neither quantize nor observe; those that
/// multiply their input by a pre_quant_scale still do.
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

/// The graph of the model in float.
[[nodiscard]] TraceGraph float_graph(Module& model, const Shape& input_shape);
/// Of a batch of one.
[[nodiscard]] Shape input_shape_of(const DataLoader& data);

/// This process alone in place of none.
[[nodiscard]] std::shared_ptr<Communicator> ranks_or_one(std::shared_ptr<Communicator> ranks);
/// Runs epoch 0 of the data through the model as it stands, without a tape, up to `samples` images (0 is
/// all); each of `ranks` its batches; `recorder`, if there is one, watches. Returns how many images. Throws
/// ArgumentError, in the name of `function`, when there is no data or it is not the rank's share,
/// NumericError with the batch.
std::int64_t run_batches(Module& model, DataLoader& data, std::int64_t samples, const Communicator& ranks,
                         Recorder* recorder, const std::string& function);

/// Throws ArgumentError when a quantizer has its range already, other than one that its descriptor gives:
/// weights and activations are about to change.
void check_uncalibrated(Module& model, const std::string& function);

}  // namespace fq::ptq
