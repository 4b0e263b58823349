#include "fakequant/export/onnx/reader/input.h"

#include <set>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/reader/node_reader.h"

namespace fq::detail {
namespace {

std::string text_of(const OnnxValueInfo& input) {
  std::string out;
  for (const auto& dim : input.shape)
    out += (out.empty() ? "" : ", ") +
           (dim.size >= 0 ? std::to_string(dim.size) : "'" + dim.symbol.substr(0, 40) + "'");
  return "[" + out + "]";
}

/// Of one sample: the file's sizes, those given where it leaves them open.
Shape sizes_of(const OnnxValueInfo& input, const Shape& given) {
  const std::string name = input.name.substr(0, 100),
                    text = input.has_shape ? text_of(input) : "of any shape";
  if (!input.has_shape) {
    FQ_CHECK(!given.empty(), "import_onnx", "the input '{}' is {}: give the shape of one sample", name, text);
    return given;
  }
  FQ_CHECK(input.shape.size() >= 2 && input.shape.size() <= 8, "import_onnx",
           "the input '{}' is {}: a batch and 1 to 7 axes of a sample are supported", name, text);
  FQ_CHECK(given.empty() || given.size() + 1 == input.shape.size(), "import_onnx",
           "the input '{}' is {} with the batch: {} does not fit a sample of it", name, text,
           to_string(given));
  Shape shape;
  for (std::size_t i = 1; i < input.shape.size(); ++i) {
    const auto size = input.shape[i].size;
    FQ_CHECK(size >= 0 || !given.empty(), "import_onnx",
             "the input '{}' is {}: give the shape of one sample, without the batch", name, text);
    FQ_CHECK(size < 0 || given.empty() || given[i - 1] == size, "import_onnx",
             "the input '{}' is {}: {} does not fit a sample of it", name, text, to_string(given));
    shape.push_back(size >= 0 ? size : given[i - 1]);
  }
  return shape;
}

void check_sample(const Shape& shape) {
  std::int64_t left = kLargestSize;
  for (const auto size : shape) left = size > 0 ? left / size : 0;
  FQ_CHECK(left > 0, "import_onnx", "one sample is {}: it is empty or has more than {} elements",
           to_string(shape), kLargestSize);
}

}  // namespace

const OnnxValueInfo& input_of(const OnnxModel& model) {
  std::set<std::string_view> fixed;
  for (const auto& initializer : model.initializers) fixed.insert(initializer.name);
  std::vector<const OnnxValueInfo*> inputs;
  for (const auto& input : model.inputs)
    if (!fixed.contains(input.name)) inputs.push_back(&input);
  FQ_CHECK(inputs.size() == 1, "import_onnx", "the graph has {} inputs: one is needed", inputs.size());
  const auto& input = *inputs[0];
  const bool ids = input.dtype == DType::i32 || input.dtype == DType::i64;
  FQ_CHECK(input.kind == OnnxKind::tensor && (is_floating(input.dtype) || ids), "import_onnx",
           "the input '{}' is {}: floats or token ids are needed", input.name.substr(0, 100),
           input.kind == OnnxKind::tensor ? name(input.dtype) : "not a tensor of numbers");
  return input;
}

const std::string& output_of(const OnnxModel& model, const std::string& wanted) {
  std::vector<std::string> names;
  for (const auto& output : model.outputs) {
    if (output.name == wanted || (wanted.empty() && model.outputs.size() == 1)) return output.name;
    if (names.size() < 50) names.push_back(output.name.substr(0, 100));
  }
  const std::string list = fmt::format("'{}'", fmt::join(names, "', '"));
  FQ_CHECK(wanted.empty(), "import_onnx", "the graph has no output '{}': its outputs are {}",
           wanted.substr(0, 100), list);
  throw ArgumentError(fmt::format("[import_onnx] the graph has {} outputs: name the one to train, {}",
                                  model.outputs.size(), list));
}

Shape sample_shape_of(const OnnxValueInfo& input, const Shape& given) {
  Shape shape = sizes_of(input, given);
  check_sample(shape);
  return shape;
}

}  // namespace fq::detail
