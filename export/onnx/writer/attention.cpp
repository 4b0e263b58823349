#include <cmath>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/writer/forms.h"
#include "fakequant/export/onnx/writer/grids.h"

namespace fq::detail {
namespace {

/// Returns [N, K, S, D] with each head repeated for the query heads that share it.
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

/// Transposes the last two axes of input i, which has the name `floats`. Quantizes the result again, because
/// engines expect quantizers directly before a product.
std::string swap_last_axes(Exporting& out, const Call& call, std::size_t i, const std::string& floats) {
  const Variable& x = call.inputs.at(i);
  Numbers axes(static_cast<std::size_t>(x.rank()));
  for (std::size_t axis = 0; axis < axes.size(); ++axis) axes[axis] = static_cast<std::int64_t>(axis);
  std::swap(axes[axes.size() - 2], axes.back());
  const std::string y =
      out.graph().add("Transpose", Exporting::node_name(call) + ".turned", {floats}, {{"perm", axes}});
  const QuantizedTensor* codes = x.quantized();
  // With a scale per channel, the scales would have to move with the axes.
  if (codes == nullptr || !codes->grid.granularity.is_per_tensor() || floats != out.input(call, i)) return y;
  return add_grid(out.graph(), out.options(),
                  {y, x.rank(), codes->grid, call.path, codes->grid.name + ".turned"});
}

/// Returns 0 where a query sees a key, else -infinity.
Tensor causal_mask(std::int64_t queries, std::int64_t keys) {
  Tensor mask = Tensor::empty({queries, keys}, DType::f32);
  auto* to = mask.mutable_data<float>();
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t j = 0; j < keys; ++j)
      // The queries are the last tokens: query i sees the keys before it, also the keys of a cache.
      *to++ = j <= i + keys - queries ? 0.0f : -std::numeric_limits<float>::infinity();
  return mask;
}

/// Adds the masks to scores. The mask of the call is input `mask`.
std::string masked(Exporting& out, const Call& call, std::string scores, Shape sizes, std::size_t mask) {
  const std::string name = Exporting::node_name(call);
  auto& graph = out.graph();
  const std::int64_t queries = sizes.at(2), keys = sizes.at(3);
  const bool causal = call.get<bool>("causal");
  FQ_CHECK(!causal || queries <= keys, "export_onnx",
           "'{}' has {} queries and {} keys: the first queries see no key, and ONNX's Softmax is undefined "
           "for them",
           name, queries, keys);
  scores =
      graph.add("Mul", name + ".scaled", {scores, number(out, name + ".scale", call.get<double>("scale"))});
  if (causal)
    scores = graph.add("Add", name + ".causal",
                       {scores, graph.constant(name + ".causal_mask", causal_mask(queries, keys))});
  if (const Variable& given = call.inputs.at(mask); given.defined()) {
    FQ_CHECK(given.tensor().dtype() == DType::f32, "export_onnx",
             "the mask of '{}' is {}: use a mask of floats, which is added", name, given.tensor().describe());
    scores = graph.add("Add", name + ".masked", {scores, out.input(call, mask)});
  }
  return scores;
}

constexpr std::int64_t kKeys = -1;  // the axis of Softmax

void attention_weights(Exporting& out, const Call& call) {
  out.node(call, "Softmax", {masked(out, call, out.input(call, 0), call.output.shape(), 1)},
           {{"axis", kKeys}});
}

void attention(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call);
  auto& graph = out.graph();
  const std::string keys = swap_last_axes(out, call, 1, repeated(out, call, 1));
  const std::string scores = graph.add("MatMul", name + ".scores", {out.input(call, 0), keys});
  const Shape sizes{0, 0, call.inputs.at(0).dim(2), call.inputs.at(1).dim(2)};
  const std::string p =
      graph.add("Softmax", name + ".softmax", {masked(out, call, scores, sizes, 3)}, {{"axis", kKeys}});
  out.node(call, "MatMul", {p, repeated(out, call, 2)});
}

/// Computes x * cosine + partner * sine. Both are constants [L, D], and Gather returns the partner of each
/// element.
void rotary(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call), x = out.input(call, 0);
  const std::int64_t rows = call.output.dim(-2), width = call.output.dim(-1),
                     pairs = call.get<std::int64_t>("dims") / 2, first = call.get<std::int64_t>("first");
  const bool interleaved = call.get<bool>("interleaved");
  const auto frequencies = call.get<std::vector<double>>("frequencies");
  const double magnitude = call.get<double>("magnitude");
  Tensor cosine = Tensor::full({rows, width}, 1.0), sine = Tensor::full({rows, width}, 0.0);
  Numbers partner(static_cast<std::size_t>(width));
  for (std::size_t d = 0; d < partner.size(); ++d) partner[d] = static_cast<std::int64_t>(d);
  auto *c = cosine.mutable_data<float>(), *s = sine.mutable_data<float>();
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int64_t left = interleaved ? 2 * i : i, right = interleaved ? 2 * i + 1 : i + pairs;
    std::swap(partner[static_cast<std::size_t>(left)], partner[static_cast<std::size_t>(right)]);
    for (std::int64_t r = 0; r < rows; ++r) {
      // Angles in double: float32 loses digits at large positions. (left, right) becomes (left cos - right
      // sin, right cos + left sin).
      const double angle = static_cast<double>(first + r) * frequencies[static_cast<std::size_t>(i)];
      c[r * width + left] = c[r * width + right] = static_cast<float>(std::cos(angle) * magnitude);
      s[r * width + right] = static_cast<float>(std::sin(angle) * magnitude);
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

void matmul(Exporting& out, const Call& call) {
  std::string right = out.input(call, 1);
  if (call.get<bool>("transpose_b")) right = swap_last_axes(out, call, 1, right);
  out.node(call, "MatMul", {out.input(call, 0), right});
}

}  // namespace

Forms attention_forms() {
  return {{"matmul", matmul},
          {"scaled_dot_product_attention", attention},
          {"attention_weights", attention_weights},
          {"rotary", rotary}};
}

}  // namespace fq::detail
