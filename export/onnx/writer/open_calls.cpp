#include "fakequant/export/onnx/writer/open_calls.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

Calls run(Module& model, const Shape& sample, std::int64_t batch) {
  Shape shape{batch};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return record_calls(model, shape);
}

}  // namespace

Shape OpenCalls::open_shape(std::size_t i) const {
  Shape shape = list[i].output.shape();
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != wider[i][axis]) shape[axis] = -1;
  return shape;
}

OpenCalls record_open_calls(Module& model, const Shape& sample) {
  constexpr std::int64_t batch = 2;
  OpenCalls out{run(model, sample, batch), {}};
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
