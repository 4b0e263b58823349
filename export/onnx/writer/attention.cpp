#include <cmath>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/writer/forms.h"

namespace fq::detail {
namespace {

/// [N, K, S, D] with each head repeated for those of the queries that share it.
std::string repeated(Exporting& out, const Call& call, std::size_t i) {
  const Shape q = call.inputs.at(0).shape(), x = call.inputs.at(i).shape();
  const std::string name = Exporting::node_name(call) + (i == 1 ? ".keys" : ".values"),
                    from = out.input(call, i);
  if (q[1] == x[1]) return from;
  auto& graph = out.graph();
  const std::string apart = graph.add("Reshape", name + ".apart",
                                      {from, integers(out, name + ".apart_shape", {0, x[1], 1, x[2], x[3]})});
  const std::string expanded =
      graph.add("Expand", name + ".expanded",
                {apart, integers(out, name + ".shape", {1, x[1], q[1] / x[1], x[2], x[3]})});
  return graph.add("Reshape", name, {expanded, integers(out, name + ".whole_shape", {0, q[1], x[2], x[3]})});
}

/// 0 where a query sees a key, else -infinity.
Tensor causal_mask(std::int64_t queries, std::int64_t keys) {
  Tensor mask = Tensor::empty({queries, keys}, DType::f32);
  auto* to = mask.mutable_data<float>();
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t j = 0; j < keys; ++j)
      *to++ = j <= i + keys - queries ? 0.0f : -std::numeric_limits<float>::infinity();
  return mask;
}

void attention(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call);
  auto& graph = out.graph();
  const std::int64_t queries = call.inputs.at(0).dim(2), keys = call.inputs.at(1).dim(2);
  const bool causal = call.get<bool>("causal");
  FQ_CHECK(!causal || queries <= keys, "export_onnx",
           "'{}' has {} queries and {} keys: the first see none, which Softmax of ONNX has no answer for",
           name, queries, keys);
  const std::string turned = graph.add("Transpose", name + ".keys_turned", {repeated(out, call, 1)},
                                       {{"perm", Numbers{0, 1, 3, 2}}});
  const std::string products = graph.add("MatMul", name + ".scores", {out.input(call, 0), turned});
  std::string scores =
      graph.add("Mul", name + ".scaled", {products, number(out, name + ".scale", call.get<double>("scale"))});
  if (causal)
    scores = graph.add("Add", name + ".causal",
                       {scores, graph.constant(name + ".causal_mask", causal_mask(queries, keys))});
  if (const Variable& mask = call.inputs.at(3); mask.defined()) {
    FQ_CHECK(mask.tensor().dtype() == DType::f32, "export_onnx",
             "the mask of '{}' is {}: give one of floats, which are added", name, mask.tensor().describe());
    scores = graph.add("Add", name + ".masked", {scores, out.input(call, 3)});
  }
  const std::string p = graph.add("Softmax", name + ".softmax", {scores}, {{"axis", std::int64_t{-1}}});
  out.node(call, "MatMul", {p, repeated(out, call, 2)});
}

/// x * cosine + partner * sine, with both as constants [L, D] and each element's partner by Gather.
void rotary(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call), x = out.input(call, 0);
  const std::int64_t rows = call.output.dim(-2), width = call.output.dim(-1),
                     pairs = call.get<std::int64_t>("dims") / 2, first = call.get<std::int64_t>("first");
  const bool interleaved = call.get<bool>("interleaved");
  Tensor cosine = Tensor::full({rows, width}, 1.0), sine = Tensor::full({rows, width}, 0.0);
  Numbers partner(static_cast<std::size_t>(width));
  for (std::size_t d = 0; d < partner.size(); ++d) partner[d] = static_cast<std::int64_t>(d);
  auto *c = cosine.mutable_data<float>(), *s = sine.mutable_data<float>();
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int64_t left = interleaved ? 2 * i : i, right = interleaved ? 2 * i + 1 : i + pairs;
    std::swap(partner[static_cast<std::size_t>(left)], partner[static_cast<std::size_t>(right)]);
    const double frequency =
        std::pow(call.get<double>("base"), -static_cast<double>(i) / static_cast<double>(pairs));
    for (std::int64_t r = 0; r < rows; ++r) {
      const double angle = static_cast<double>(first + r) * frequency;
      c[r * width + left] = c[r * width + right] = static_cast<float>(std::cos(angle));
      s[r * width + right] = static_cast<float>(std::sin(angle));
      s[r * width + left] = -s[r * width + right];
    }
  }
  auto& graph = out.graph();
  const std::string partners =
      graph.add("Gather", name + ".partners", {x, integers(out, name + ".partner", partner)},
                {{"axis", std::int64_t{call.output.rank() - 1}}});
  const std::string straight =
      graph.add("Mul", name + ".straight", {x, graph.constant(name + ".cosine", cosine)});
  out.node(call, "Add",
           {straight, graph.add("Mul", name + ".across", {partners, graph.constant(name + ".sine", sine)})});
}

/// Of the last two axes of the second factor, where it is read that way.
void matmul(Exporting& out, const Call& call) {
  if (!call.get<bool>("transpose_b"))
    return out.node(call, "MatMul", {out.input(call, 0), out.input(call, 1)});
  Numbers axes(static_cast<std::size_t>(call.inputs.at(1).rank()));
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<std::int64_t>(i);
  std::swap(axes[axes.size() - 2], axes.back());
  const std::string turned = out.graph().add("Transpose", Exporting::node_name(call) + ".turned",
                                             {out.input(call, 1)}, {{"perm", axes}});
  out.node(call, "MatMul", {out.input(call, 0), turned});
}

}  // namespace

Forms attention_forms() {
  return {{"matmul", matmul}, {"scaled_dot_product_attention", attention}, {"rotary", rotary}};
}

}  // namespace fq::detail
