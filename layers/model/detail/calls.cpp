#include "fakequant/layers/model/detail/calls.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/model/detail/meta_scope.h"

namespace fq::detail {
namespace {

// Keeps the variables themselves, so that their codes, grids and nodes can be read after the run.
class CallRecorder : public Recorder {
 public:
  void record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                 Attributes attributes) override {
    calls.push_back({module_path(), std::string(op), std::move(attributes), inputs, output});
  }

  std::vector<Call> calls;
};

}  // namespace

const Attribute* Call::attribute(std::string_view name) const {
  const auto found =
      std::ranges::find(attributes, name, [](const auto& entry) { return std::string_view(entry.first); });
  return found == attributes.end() ? nullptr : &found->second;
}

void Call::missing(std::string_view name) const {
  throw ArgumentError(
      fmt::format("[export_onnx] {} of '{}' has no attribute '{}': it cannot be exported", op, path, name));
}

Calls record_calls(Module& model, const Shape& input_shape) {
  const MetaScope meta_scope(model);
  const NoGrad no_grad;
  Calls out;
  out.input = Variable(Tensor::empty(input_shape, DType::f32, Device::meta()));
  CallRecorder recorder;
  {
    const RecordScope scope(recorder);
    out.output = model(out.input);
  }
  out.list = std::move(recorder.calls);
  return out;
}

}  // namespace fq::detail
