#include "fakequant/export/onnx/reader/op_import.h"

#include "fakequant/export/onnx/reader/fold.h"

namespace fq::detail {

const ImportValue& OpImport::value(std::size_t i) const {
  check(has_input(i) && i < inputs_.size(), "its input {} is missing", i);
  if (inputs_[i].is_constant()) unsupported("of a constant");
  return inputs_[i];
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
  return tensor.dtype() == DType::f32 ? shortest(static_cast<float>(tensor.item())) : tensor.item();
}

std::vector<std::int64_t> OpImport::list(std::string_view key, std::size_t i) const {
  return has_input(i) ? integers_of(*this, constant(i)) : integers(key);
}

ImportValue OpImport::layer(const std::string& type, nlohmann::ordered_json options,
                            const std::vector<ImportValue>& inputs, const std::vector<LayerValue>& values,
                            const std::string& suffix) const {
  return context_.model.add(*this, context_.names.name(node(), type, suffix), type, std::move(options),
                            inputs, values);
}

ImportValue OpImport::reshaped(const ImportValue& x, const Shape& shape, const std::string& suffix) const {
  check(!shape.empty() && shape[0] == kImportBatch && numel(shape) == numel(x.shape),
        "it gives {} another shape, in which the first axis is not the batch",
        to_string({x.shape.begin() + 1, x.shape.end()}));
  if (shape == x.shape) return x;
  if (shape.size() == 2) {
    recognise("flatten");
    return layer("flatten", {}, {x}, {}, suffix);
  }
  return layer("reshape", {{"shape", Shape(shape.begin() + 1, shape.end())}}, {x}, {}, suffix);
}

void OpImport::unsupported(const std::string& how) const {
  throw UnsupportedUse{operator_name(node()) + " " + how};
}

}  // namespace fq::detail
