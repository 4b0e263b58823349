#include "fakequant/export/executorch/detail/network.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include <fmt/format.h>

#include "fakequant/core/context.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/trace.h"
#include "fakequant/core/variable.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/quantizer/compress.h"

namespace fq::detail {
namespace {

using nlohmann::json;

constexpr const char* kWhere = "export_executorch";

Tensor host_copy(const Tensor& value) { return value.to(Device::cpu()).to(Layout::row_major).clone(); }

/// Records every operator, and the constants that the operators read.
class GraphRecorder : public Recorder {
 public:
  explicit GraphRecorder(const Variable& input) { ids_[input.node().get()] = input_ = next(input); }

  void record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                 Attributes attributes) override {
    // Skips quantizers of constants: the codes are read instead.
    if (op == "quantize" && !known(inputs.at(0))) return;
    json node{{"path", module_path()}, {"op", op}, {"attributes", json::object()}, {"inputs", json::array()}};
    for (const auto& [key, value] : attributes)
      std::visit([&node, &key = key](const auto& v) { node["attributes"][key] = v; }, value);
    for (const auto& input : inputs) node["inputs"].push_back(value_id(input));
    if (op == "quantize") add_grid(node, *output.quantized());
    node["output"] = ids_[output.node().get()] = next(output);
    nodes_.push_back(std::move(node));
  }

  [[nodiscard]] StateDict finish(const Variable& output, const Shape& shape, bool tokens) {
    const int last = value_id(output);
    StateDict out = std::move(constants_);
    out.set_attribute("graph", {{"input", input_},
                                {"output", last},
                                {"shape", shape},
                                {"tokens", tokens},
                                {"nodes", std::move(nodes_)}});
    return out;
  }

 private:
  [[nodiscard]] bool known(const Variable& value) const { return ids_.contains(value.node().get()); }
  int next(const Variable& value) {
    alive_.push_back(value);  // addresses identify values, so none may be reused
    return static_cast<int>(alive_.size()) - 1;
  }
  int value_id(const Variable& value) {
    if (!value.defined()) return -1;
    const auto found = ids_.find(value.node().get());
    if (found != ids_.end()) return found->second;
    const int id = ids_[value.node().get()] = next(value);
    // A value that no recorded operator computed is a constant. Its number is assigned when it is first read.
    if (const QuantizedTensor* codes = value.quantized(); codes != nullptr) {
      constants_.set(fmt::format("codes/{}", id), host_copy(codes->codes));
      constants_.set(fmt::format("scales/{}", id), scale_list(*codes));
      constants_.set_attribute(fmt::format("bits/{}", id), codes->grid.format.bits());
    } else {
      constants_.set(fmt::format("values/{}", id), host_copy(value.tensor()));
    }
    return id;
  }
  // A list of scales becomes a tensor with one element per block of the codes.
  static Tensor scale_list(const QuantizedTensor& codes) {
    const Shape blocks = codes.grid.granularity.scale_shape(codes.codes.shape());
    const Tensor host = host_copy(codes.grid.scale);
    return host.numel() == numel(blocks) ? host.reshape(blocks) : host;
  }
  static void add_grid(json& node, const QuantizedTensor& codes) {
    const Grid& grid = codes.grid;
    FQ_CHECK(grid.format.is_integer() && grid.format.bits() <= 8 && grid.scale.numel() == 1, kWhere,
             "'{}' is {} with {} scales: ExecuTorch's int8 has one scale per tensor: calibrate with --preset "
             "int8, 8da8w or 8da4w",
             grid.name, to_string(grid.format), grid.scale.numel());
    node["scale"] = host_copy(grid.scale).to_vector<float>()[0];
    node["low"] = grid.format.lower();
    node["high"] = grid.format.bound();
    // ExecuTorch stores activations as int8. Unsigned codes 0..255 are therefore shifted by -128.
    node["zero_point"] = grid.format.integer().is_unsigned ? -128 : 0;
  }

  std::vector<Variable> alive_;
  std::unordered_map<const Node*, int> ids_;
  StateDict constants_;
  json nodes_ = json::array();
  int input_ = -1;
};

/// Whether the first operator looks up rows of a table.
bool reads_ids(Module& model, const Shape& shape) {
  const TraceGraph graph = trace(model, shape);
  const auto& readers = graph.values.at(static_cast<std::size_t>(graph.inputs.at(0))).readers;
  return std::ranges::any_of(
      readers, [&](int node) { return graph.nodes[static_cast<std::size_t>(node)].op == "embedding"; });
}

}  // namespace

StateDict executorch_network(Module& model, const Shape& input_shape) {
  check_not_compressed(model, kWhere);
  // Row numbers must be integers: zeros of f32 would not be valid indices of an embedding.
  const bool tokens = reads_ids(model, input_shape);
  const Variable input(Tensor::zeros(input_shape, tokens ? DType::i64 : DType::f32));
  const NoGrad no_gradients;
  GraphRecorder recorder(input);
  Variable output;
  {
    const RecordScope scope(recorder);
    output = model(input).as_float();
  }
  return recorder.finish(output, input_shape, tokens);
}

}  // namespace fq::detail
