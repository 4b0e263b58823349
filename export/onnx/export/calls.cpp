#include "fakequant/export/onnx/export/calls.h"

#include <algorithm>

#include "fakequant/core/check.h"
#include "fakequant/layers/meta_scope.h"

namespace fq::detail {
namespace {

class CallRecorder : public Recorder {
 public:
  void on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
             Attributes attributes) override {
    calls.push_back({module_path(), std::string(op), std::move(attributes), inputs, output});
  }

  std::vector<Call> calls;
};

Calls run(Module& model, const Shape& sample, std::int64_t batch) {
  const MetaScope on_meta(model);
  const NoGrad no_grad;
  Shape shape{batch};
  shape.insert(shape.end(), sample.begin(), sample.end());
  Calls out;
  out.input = Variable(Tensor::empty(shape, DType::f32, Device::meta()));
  CallRecorder recorder;
  {
    const RecordScope scope(recorder);
    out.output = model(out.input);
  }
  out.list = std::move(recorder.calls);
  return out;
}

}  // namespace

const Attribute* Call::attribute(std::string_view name) const {
  const auto found =
      std::ranges::find(attributes, name, [](const auto& entry) { return std::string_view(entry.first); });
  return found == attributes.end() ? nullptr : &found->second;
}

void Call::missing(std::string_view name) const {
  throw ArgumentError(
      fmt::format("[export_onnx] {} of '{}' does not tell its {}: it cannot be exported", op, path, name));
}

Shape Calls::open_shape(std::size_t i) const {
  Shape shape = list[i].output.shape();
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != wider[i][axis]) shape[axis] = -1;
  return shape;
}

Calls record_calls(Module& model, const Shape& sample) {
  constexpr std::int64_t batch = 2;
  Calls out = run(model, sample, batch);
  const Calls more = run(model, sample, batch + 1);
  for (const auto& call : more.list) out.wider.push_back(call.output.shape());
  const auto same = [](const Call& a, const Call& b) {
    return a.op == b.op && a.path == b.path && a.output.rank() == b.output.rank();
  };
  FQ_CHECK(std::ranges::equal(out.list, more.list, same), "export_onnx",
           "the model calls other operators for a batch of {} than for one of {}: a graph has one way", batch,
           batch + 1);
  return out;
}

}  // namespace fq::detail
