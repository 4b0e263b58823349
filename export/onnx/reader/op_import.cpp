#include "fakequant/export/onnx/reader/op_import.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/export/onnx/reader/folding/fold.h"

namespace fq::detail {

const ImportValue& OpImport::value(std::size_t i) const {
  check(has_input(i) && i < inputs_.size(), "its input {} is missing", i);
  check_elements(i);
  if (!inputs_[i].is_constant()) return inputs_[i];
  // A builder may ask several times for an input. Its constant becomes one layer.
  auto made = made_.find(i);
  if (made == made_.end()) made = made_.emplace(i, layer_of_constant(i)).first;
  return made->second;
}

ImportValue OpImport::layer_of_constant(std::size_t i) const {
  const Tensor& value = inputs_[i].constant;
  if (value.rank() == 0 || value.numel() == 0) unsupported("of a constant");
  // Masks and counts keep their values. Weights of the file are trained further.
  const bool trained = inputs_[i].learned && is_floating(value.dtype());
  return reshaped(parameter(value, value.shape(), trained), value.shape());
}

void OpImport::check_elements(std::size_t i) const {
  check(!inputs_[i].is_empty(), "its input {} is {}, without elements: only a Concat may read it", i,
        batch_text(inputs_[i].shape));
}

namespace {

/// Replaces infinities of masks by the largest numbers, which model files can store.
Tensor clamp_infinities(const Tensor& x) {
  constexpr float largest = std::numeric_limits<float>::max();
  auto values = x.to_vector<float>();
  for (float& v : values) v = std::isnan(v) ? v : std::clamp(v, -largest, largest);
  return Tensor::from(values, x.shape());
}

}  // namespace

ImportValue OpImport::parameter(const Tensor& value, Shape shape, bool learned, bool repeat) const {
  check(bit_width(value.dtype()) >= 8, "its constant is {}", value.describe());
  if (shape.empty()) shape = {1};
  // value: [shape..], stored as [1, shape..], so that it broadcasts against a batch.
  const Tensor floats = clamp_infinities(value.to(DType::f32));
  Shape whole = shape;
  whole.insert(whole.begin(), 1);
  NodeOptions options{{"shape", shape}};
  if (!learned) options["trained"] = false;
  if (repeat) options["repeat"] = true;
  // A layer has an input. A parameter reads only the batch of the network's input.
  return layer("parameter", options, {context_.input}, {{"parameters", "value", floats.reshape(whole)}},
               "parameter");
}

ImportValue OpImport::each(std::size_t i) const {
  const Tensor& value = constant(i);
  check(value.rank() >= 2 && value.dim(0) == 1, "its constant is {}: one for each sample, [1, ..], is needed",
        value.describe());
  const Shape shape(value.shape().begin() + 1, value.shape().end());
  return parameter(value, shape, inputs_[i].learned && is_floating(value.dtype()), true);
}

ImportValue OpImport::operand(std::size_t i, std::size_t rank) const {
  check(has_input(i) && i < inputs_.size(), "its input {} is missing", i);
  const ImportValue& in = inputs_[i];
  check_elements(i);
  if (!in.is_constant()) return in;
  Shape shape = in.constant.shape();
  check(shape.size() <= rank, "its constant is {}, its other input has {} axes", in.constant.describe(),
        rank);
  // The first axis meets the batch of the other input and must be 1. A layer "parameter" has it implicitly.
  if (shape.size() == rank && rank > 0) {
    check(is_batch(shape[0]) && shape[0] == 1, "its constant is {}: it differs from sample to sample",
          in.constant.describe());
    shape.erase(shape.begin());
  }
  const ImportValue value = parameter(in.constant, shape, in.learned && is_floating(in.constant.dtype()));
  return rank == 1 ? reshaped(value, {1}) : value;
}

const Tensor& OpImport::constant(std::size_t i) const {
  check(has_input(i) && i < inputs_.size(), "its input {} is missing", i);
  if (!inputs_[i].is_constant()) unsupported("with a computed input " + std::to_string(i));
  return inputs_[i].constant;
}

Tensor OpImport::weight(std::size_t i) const {
  const Tensor& tensor = constant(i);
  check(is_floating(tensor.dtype()), "its input {} is {}: floats are needed", i, tensor.describe());
  check(tensor.numel() > 0, "its input {} is {}: it has no elements", i, tensor.describe());
  return tensor.to(DType::f32);
}

double OpImport::scalar(std::size_t i) const {
  const Tensor& tensor = constant(i);
  check(tensor.numel() == 1 && bit_width(tensor.dtype()) >= 8, "its input {} is {}: one number is needed", i,
        tensor.describe());
  // Options of layers are doubles: 0.1f should be 0.1 there.
  return tensor.dtype() == DType::f32 ? shortest(static_cast<float>(tensor.item())) : tensor.item();
}

std::int64_t OpImport::whole_scalar(std::size_t i) const {
  const auto numbers = integer_list(*this, constant(i));
  check(numbers.size() == 1, "its input {} has {} elements: one number is needed", i, numbers.size());
  return numbers[0];
}

std::vector<std::int64_t> OpImport::list(std::string_view key, std::size_t i) const {
  return has_input(i) ? integer_list(*this, constant(i)) : integers(key);
}

ImportValue OpImport::layer(const std::string& type, NodeOptions options,
                            const std::vector<ImportValue>& inputs, const std::vector<LayerValue>& values,
                            const std::string& suffix) const {
  return context_.model.add(*this, context_.names.name(node(), type, suffix), type, std::move(options),
                            inputs, values);
}

ImportValue OpImport::reshaped(const ImportValue& x, const Shape& shape, const std::string& suffix) const {
  const int samples = batch_axis(shape);
  check(!shape.empty() && (samples >= 0 || x.fixed) && numel(shape) == numel(x.shape),
        "it reshapes {} so that no axis is the batch", to_string({x.shape.begin() + 1, x.shape.end()}));
  if (shape == x.shape) return x;
  const bool first =
      samples == 0 && shape[0] == kSymbolicBatch && x.shape[0] == kSymbolicBatch && shape.size() > 1;
  if (!first) {
    Shape whole = shape;
    // With "whole" the shape includes the batch, here on an axis other than the first.
    if (samples >= 0) whole[static_cast<std::size_t>(samples)] = -1;
    return layer("reshape", {{"shape", whole}, {"whole", true}}, {x}, {}, suffix);
  }
  if (shape.size() == 2 && x.shape.size() > 2) {
    recognise("flatten");
    return layer("flatten", {}, {x}, {}, suffix);
  }
  return layer("reshape", {{"shape", Shape(shape.begin() + 1, shape.end())}}, {x}, {}, suffix);
}

void OpImport::unsupported(const std::string& how) const {
  throw UnsupportedUse{operator_name(node()) + " " + how};
}

}  // namespace fq::detail
