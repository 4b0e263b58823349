#include "fakequant/export/onnx/reader/input.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/export/onnx/reader/patterns/graph_view.h"
#include "fakequant/layers/model/detail/symbolic_batch.h"

namespace fq::detail {
namespace {

std::string axis_text(const OnnxDim& dim) {
  return dim.size >= 0 ? std::to_string(dim.size) : "'" + dim.symbol.substr(0, 40) + "'";
}

std::string shape_text(const OnnxValueInfo& input) {
  std::string out;
  for (const auto& dim : input.shape) out += (out.empty() ? "" : ", ") + axis_text(dim);
  return "[" + out + "]";
}

/// Returns the sizes of one sample: the sizes of the file, and `given` for open sizes. A part of the data may
/// be one number per sample, [N].
Shape sample_sizes(const OnnxValueInfo& input, const Shape& given, bool part = false) {
  const std::string name = input.name.substr(0, 100),
                    text = input.has_shape ? shape_text(input) : "of any shape";
  if (!input.has_shape) {
    FQ_CHECK(!given.empty(), "import_onnx", "the input '{}' is {}: use the shape of one sample", name, text);
    return given;
  }
  FQ_CHECK(input.shape.size() >= (part ? 1 : 2) && input.shape.size() <= 8, "import_onnx",
           "the input '{}' is {}: a batch and up to 7 axes of a sample are supported", name, text);
  FQ_CHECK(given.empty() || given.size() + 1 == input.shape.size(), "import_onnx",
           "the input '{}' is {} with the batch: {} does not fit a sample of it", name, text,
           to_string(given));
  Shape shape;
  for (std::size_t i = 1; i < input.shape.size(); ++i) {
    const auto size = input.shape[i].size;
    FQ_CHECK(size >= 0 || !given.empty(), "import_onnx",
             "the input '{}' is {}: use the shape of one sample, without the batch", name, text);
    FQ_CHECK(size < 0 || given.empty() || given[i - 1] == size, "import_onnx",
             "the input '{}' is {}: {} does not fit a sample of it", name, text, to_string(given));
    shape.push_back(size >= 0 ? size : given[i - 1]);
  }
  return shape;
}

void check_sample(const Shape& shape) {
  std::int64_t left = kLargestSize;
  // Divides the limit, so that no product overflows.
  for (const auto size : shape) left = size > 0 ? left / size : 0;
  FQ_CHECK(left > 0, "import_onnx", "one sample is {}: it is empty or has more than {} elements",
           to_string(shape), kLargestSize);
}

}  // namespace

namespace {

std::string described(const OnnxValueInfo& input) {
  return fmt::format("'{}' {} {}", input.name.substr(0, 100),
                     input.kind == OnnxKind::boolean  ? "bool"
                     : input.kind == OnnxKind::tensor ? name(input.dtype)
                                                      : "not a tensor of numbers",
                     input.has_shape ? shape_text(input) : "of any shape");
}

/// Returns the inputs that are read and are not initializers.
std::vector<const OnnxValueInfo*> read_inputs(const OnnxModel& model, const std::vector<OnnxNode>& nodes,
                                              const std::string& output) {
  std::set<std::string> hidden, read{output};
  for (const auto& initializer : model.initializers) hidden.insert(initializer.name);
  for (const auto& node : nodes) add_reads(node, read);
  std::vector<const OnnxValueInfo*> all, inputs;
  for (const auto& input : model.inputs) {
    if (hidden.contains(input.name)) continue;
    all.push_back(&input);
    if (read.contains(input.name)) inputs.push_back(&input);
  }
  return inputs.empty() ? all : inputs;
}

/// Returns the reason why the batch of the second input differs from the first axis of the first input. Empty
/// if they fit.
std::string batch_mismatch(const OnnxValueInfo& first, const OnnxValueInfo& input) {
  const std::string name = input.name.substr(0, 100), of = first.name.substr(0, 100);
  if (name == of && input.name == first.name) return fmt::format("two are called '{}'", name);
  if (!input.has_shape || input.shape.empty()) return fmt::format("the shape of '{}' is unknown", name);
  if (!first.has_shape || first.shape.empty()) return fmt::format("the shape of '{}' is unknown", of);
  const OnnxDim &batch = first.shape[0], &own = input.shape[0];
  for (std::size_t axis = 1; axis < input.shape.size(); ++axis)
    if (!batch.symbol.empty() && input.shape[axis].symbol == batch.symbol)
      return fmt::format("'{}' has it on axis {}", name, axis);
  if ((batch.size >= 0) != (own.size >= 0) || batch.size != own.size)
    return fmt::format("the batch of '{}' is {}, the batch of '{}' {}", of, axis_text(batch), name,
                       axis_text(own));
  return {};
}

/// Returns the reason why inputs cannot be parts of one row. Empty if they can.
std::string parts_problem(const std::vector<const OnnxValueInfo*>& open) {
  for (std::size_t i = 1; i < open.size(); ++i) {
    // In both directions: either input may have the batch symbol of the other on a later axis.
    for (const auto& [a, b] : {std::pair(open[0], open[i]), std::pair(open[i], open[0])})
      if (auto why = batch_mismatch(*a, *b); !why.empty()) return why;
  }
  return {};
}

/// Whether the data set has rows of input parts: several inputs, or one number per sample.
bool has_parts(const std::vector<const OnnxValueInfo*>& open) {
  return open.size() > 1 || (open[0]->has_shape && open[0]->shape.size() == 1);
}

void check_type(const OnnxValueInfo& input, bool part) {
  const bool ids = input.dtype == DType::i32 || input.dtype == DType::i64;
  const auto& types = ops::input_part_types();
  const bool fits = part ? std::ranges::find(types, part_type(input)) != types.end()
                         : input.kind == OnnxKind::tensor && (is_floating(input.dtype) || ids);
  FQ_CHECK(fits, "import_onnx", "the input '{}' is {}: {} are needed", input.name.substr(0, 100),
           input.kind == OnnxKind::tensor ? name(input.dtype) : "not a tensor of numbers",
           part ? fmt::format("{}", fmt::join(types, ", ")) : "floats or token ids");
}

std::vector<const OnnxValueInfo*> own_inputs(const std::vector<const OnnxValueInfo*>& inputs,
                                             const std::map<std::string, Tensor>& fixed) {
  std::vector<const OnnxValueInfo*> open;
  std::vector<std::string> all, ways;
  for (const auto* input : inputs) {
    all.push_back(described(*input));
    if (fixed.contains(input->name)) continue;
    open.push_back(input);
    if (open.size() > 1) ways.push_back(fmt::format("{}=1", input->name.substr(0, 100)));
  }
  FQ_CHECK(!open.empty(), "import_onnx", "all inputs are fixed, {}: one is the data", fmt::join(all, ", "));
  const std::string why = parts_problem(open);
  FQ_CHECK(
      why.empty(), "import_onnx",
      "the graph has {} inputs, {}: several are data where the batch is the first axis of each, and {}; "
      "fix inputs that are the same for every sample (--fix-input {}; a number for all elements, or a .npy "
      "file of one sample)",
      inputs.size(), fmt::join(all, ", "), why, fmt::join(ways, " "));
  for (const auto* input : open) check_type(*input, has_parts(open));
  return open;
}

/// Returns sizes of one sample. The shape for all inputs applies to a part of the data only if its own shape
/// is open.
Shape given_sizes(const OnnxValueInfo& input, const ImportOptions& options, bool part) {
  if (const auto own = options.input_shapes.find(input.name); own != options.input_shapes.end())
    return sample_sizes(input, own->second, part);
  const bool open = !part || std::any_of(input.shape.begin() + 1, input.shape.end(),
                                         [](const auto& dim) { return dim.size < 0; });
  return sample_sizes(input, open ? options.sample_shape : Shape{}, part);
}

void check_named(const std::vector<const OnnxValueInfo*>& open, const std::map<std::string, Shape>& shapes) {
  std::vector<std::string> names;
  for (const auto* input : open) names.push_back(input->name.substr(0, 100));
  for (const auto& [name, shape] : shapes)
    FQ_CHECK(std::ranges::find(open, name, &OnnxValueInfo::name) != open.end(), "import_onnx",
             "no input '{}' is read from the data, '{}' are: its shape cannot be given", name.substr(0, 100),
             fmt::join(names, "', '"));
}

/// Returns the data with its parts.
GraphInputs own_parts(const std::vector<const OnnxValueInfo*>& open, const ImportOptions& options) {
  check_named(open, options.input_shapes);
  if (!has_parts(open)) {
    const Shape sample = given_sizes(*open[0], options, false);
    check_sample(sample);
    return {{{open[0], sample}}, sample, {}};
  }
  GraphInputs out;
  std::int64_t total = 0;
  for (const auto* input : open) {
    const std::string& called = input->name;
    FQ_CHECK(called.size() <= 200 && printable(called) == called, "import_onnx",
             "the input '{}' has a name of more than 200 bytes or of other than text",
             printable(called.substr(0, 100)));
    out.own.push_back({input, given_sizes(*input, options, true)});
    if (!out.own.back().sample.empty()) check_sample(out.own.back().sample);
    total += numel(out.own.back().sample);
    check_sample({total});
  }
  out.sample = {total};
  return out;
}

/// Finds the shape of a fixed input from the data inputs: their batch, and axes with the same symbol.
class FixedShape {
 public:
  explicit FixedShape(const std::vector<GraphInputs::Own>& all) {
    for (const auto& [own, sample] : all) {
      if (!own->has_shape || own->shape.empty()) continue;
      batch_ = own->shape[0];
      for (std::size_t i = 1; i < own->shape.size(); ++i)
        if (!own->shape[i].symbol.empty()) sizes_[own->shape[i].symbol] = sample[i - 1];
    }
  }
  /// Returns the shape. The batch is `kSymbolicBatch`, an unknown size -1.
  [[nodiscard]] Shape of(const OnnxValueInfo& input) const {
    Shape shape;
    for (std::size_t i = 0; i < input.shape.size(); ++i) shape.push_back(size(input.shape[i], i == 0));
    return shape;
  }

 private:
  [[nodiscard]] std::int64_t size(const OnnxDim& dim, bool first) const {
    if (dim.size >= 0) return first && dim.size == batch_.size ? kSymbolicBatch : dim.size;
    if (!dim.symbol.empty() && dim.symbol == batch_.symbol) return kSymbolicBatch;
    if (const auto known = sizes_.find(dim.symbol); known != sizes_.end()) return known->second;
    return first ? kSymbolicBatch : -1;
  }

  OnnxDim batch_;
  std::map<std::string, std::int64_t> sizes_;
};

bool fits(const Shape& given, const Shape& wanted) {
  return std::ranges::equal(given, wanted, [](auto size, auto want) { return want < 0 || size == want; });
}

Shape single_sample_shape(Shape shape) {
  for (auto& size : shape)
    if (size == kSymbolicBatch) size = 1;
  return shape;
}

/// Returns the value with the shape `of_batch` for one sample. The value determines open sizes.
Tensor fitted(const OnnxValueInfo& input, const Tensor& value, Shape& of_batch) {
  const Shape one = single_sample_shape(of_batch);
  if (value.rank() == 0 && !one.empty()) {
    FQ_CHECK(std::ranges::all_of(one, [](auto size) { return size >= 0; }), "import_onnx",
             "the input {} has axes of any size: fix it by a .npy file of the shape of one sample",
             described(input));
    FQ_CHECK(numel(one) <= kLargestSize, "import_onnx", "the input {} has {} elements", described(input),
             numel(one));
    return Tensor::full(one, value.item(), DType::f64);
  }
  Shape given = value.shape();
  const bool misses_batch = given.size() + 1 == one.size() && !one.empty() && of_batch[0] == kSymbolicBatch;
  if (misses_batch) given.insert(given.begin(), 1);
  FQ_CHECK(given.size() == one.size() && fits(given, one), "import_onnx",
           "the input {} is fixed by {}, which does not fit one sample of it", described(input),
           value.describe());
  for (std::size_t i = 0; i < given.size(); ++i)
    if (of_batch[i] < 0) of_batch[i] = given[i];
  return value.to(DType::f64).reshape(given);
}

GraphInputs::Fixed fixed_value(const OnnxValueInfo& input, const Tensor& value, Shape of_batch) {
  FQ_CHECK(input.kind == OnnxKind::tensor && input.has_shape, "import_onnx",
           "the input {} cannot be fixed: the file must state its shape", described(input));
  const Tensor exact = fitted(input, value, of_batch);
  if (!is_floating(input.dtype))
    for (const double v : exact.to_vector<double>())
      // Doubles hold all integers up to 2^53.
      FQ_CHECK(v == std::floor(v) && std::abs(v) <= 9007199254740992.0, "import_onnx",
               "the input {} is fixed by {}: whole numbers are needed", described(input), v);
  return {exact.to(input.dtype), std::move(of_batch)};
}

}  // namespace

std::string part_type(const OnnxValueInfo& input) {
  return input.kind == OnnxKind::boolean  ? "bool"
         : input.kind == OnnxKind::tensor ? std::string(name(input.dtype))
                                          : "";
}

GraphInputs resolve_inputs(const OnnxModel& model, const std::vector<OnnxNode>& nodes,
                           const std::string& output, const ImportOptions& options) {
  const auto inputs = read_inputs(model, nodes, output);
  GraphInputs out = own_parts(own_inputs(inputs, options.fixed_inputs), options);
  const FixedShape shapes(out.own);
  for (const auto& [key, value] : options.fixed_inputs) {
    const auto found = std::ranges::find(model.inputs, key, &OnnxValueInfo::name);
    std::vector<std::string> names;
    for (const auto* input : inputs) names.push_back(input->name.substr(0, 100));
    FQ_CHECK(found != model.inputs.end(), "import_onnx", "the graph has no input '{}': its inputs are '{}'",
             key.substr(0, 100), fmt::join(names, "', '"));
    out.fixed.emplace(key, fixed_value(*found, value, shapes.of(*found)));
  }
  return out;
}

const std::string& output_name(const OnnxModel& model, const std::string& wanted) {
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

}  // namespace fq::detail
