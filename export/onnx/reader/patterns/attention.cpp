#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "fakequant/export/onnx/reader/operators.h"
#include "fakequant/export/onnx/reader/patterns/graph_view.h"

namespace fq::detail::onnx_ops {
namespace {

using Layer = ModelBuilder::Layer;

constexpr double kHidden = -1e9;  // scores at or below it get no attention weight
constexpr float kLowest = std::numeric_limits<float>::lowest();

/// Reads the scores of an attention backwards from the softmax.
class Scores {
 public:
  explicit Scores(const OpImport& op) : op_(op) {}

  /// Returns false if the input is not a softmax of query-key scores. Attention weights that the file rounds
  /// to 16 bits stay f32: the file computes the whole attention in 16 bits, but layers compute in f32.
  bool read(const ImportValue& weights) {
    const Layer* softmax = op_.made(weights.node);
    if (is(softmax, "round_to")) softmax = op_.made(softmax->inputs.at(0));
    if (softmax == nullptr || softmax->type != "softmax" || weights.shape.size() < 3) return false;
    const auto rank = static_cast<int>(weights.shape.size());
    const std::int64_t axis = softmax->options.value_or("axis", std::int64_t{-1});
    if (axis != -1 && axis != rank - 1) return false;
    size_ = weights.shape;
    return read_sum(softmax->inputs.at(0), 2);
  }

  ImportValue q, k;
  double scale = 1;
  bool causal = false;
  std::vector<ImportValue> masks;

 private:
  [[nodiscard]] static bool is(const Layer* layer, std::string_view type) {
    return layer != nullptr && layer->type == type;
  }

  /// Reads scores with at most `masks_left` added masks.
  bool read_sum(const std::string& node, int masks_left) {
    const Layer* layer = op_.made(node);
    if (is(layer, "add") && masks_left > 0) {
      const auto [first, second] = std::pair(layer->inputs.at(0), layer->inputs.at(1));
      // `leads_to_product` changes nothing. It selects the side of the scores before `take_mask` adds layers.
      return (leads_to_product(first) && take_mask(second) && read_sum(first, masks_left - 1)) ||
             (leads_to_product(second) && take_mask(first) && read_sum(second, masks_left - 1));
    }
    if (is(layer, "where") && masks_left > 0) {
      const auto inputs = layer->inputs;
      for (const std::size_t shown : {1, 2})
        if (leads_to_product(inputs[shown]) && is_hidden(inputs[3 - shown]))
          return take_condition(inputs[0], shown == 2) && read_sum(inputs[shown], masks_left - 1);
      return false;
    }
    return read_product(node);
  }

  [[nodiscard]] bool leads_to_product(const std::string& node) const {
    const Layer* layer = op_.made(node);
    if (is(layer, "add") || is(layer, "where"))
      return std::ranges::any_of(layer->inputs, [&](const auto& input) { return leads_to_product(input); });
    while (is(layer, "scale")) layer = op_.made(layer->inputs.at(0));
    return is(layer, "matmul");
  }

  bool read_product(std::string node) {
    node = unscaled(node);
    const Layer* product = op_.made(node);
    if (!is(product, "matmul")) return false;
    const std::string left = product->inputs.at(0), right = product->inputs.at(1);
    const Layer* queries = op_.made(unscaled(left));
    if (queries == nullptr) return false;
    q = queries->output;
    return read_keys(unscaled(right));
  }

  /// Skips factors at the end of a chain and multiplies them into the scale. Returns the value before them.
  std::string unscaled(std::string node) {
    for (const Layer* layer = op_.made(node); is(layer, "scale"); layer = op_.made(node)) {
      scale *= layer->options.value_or("factor", 1.0);
      node = layer->inputs.at(0);
    }
    return node;
  }

  /// Reads keys [.., S, D] from the matrices [.., D, S].
  bool read_keys(const std::string& node) {
    const Layer* layer = op_.made(node);
    if (layer == nullptr) return false;
    if (is(layer, "transpose")) return turn(layer->inputs.at(0), layer->options.value_or("axes", Shape()));
    if (const std::string source = turned_rows(*layer); !source.empty()) {
      const Layer* keys = op_.made(unscaled(source));
      if (keys == nullptr) return false;
      k = keys->output;
      return true;
    }
    Shape axes(layer->output.shape.size());
    std::iota(axes.begin(), axes.end(), 0);
    return turn(node, axes);
  }

  bool turn(const std::string& from, Shape axes) {
    const Layer* layer = op_.made(unscaled(from));
    if (layer == nullptr || axes.size() < 3) return false;
    std::swap(axes.end()[-1], axes.end()[-2]);
    const ImportValue x = layer->output;
    const bool same = std::ranges::is_sorted(axes);
    k = same ? x : op_.layer("transpose", {{"axes", axes}}, {x}, {}, "keys");
    return true;
  }

  /// Returns the name of x [B, H, S, D] if the layer transposes it as [B * H, S, D] to [B, H, D, S], else an
  /// empty text.
  [[nodiscard]] std::string turned_rows(const Layer& layer) const {
    const Layer* transposed = is(&layer, "reshape") ? op_.made(layer.inputs.at(0)) : nullptr;
    const Layer* rows = is(transposed, "transpose") ? op_.made(transposed->inputs.at(0)) : nullptr;
    const Layer* x = is(rows, "reshape") ? op_.made(rows->inputs.at(0)) : nullptr;
    if (x == nullptr || transposed->options.value_or("axes", Shape()) != Shape{0, 2, 1}) return {};
    Shape wanted = x->output.shape;
    if (wanted.size() != 4 || rows->output.shape != Shape{wanted[0] * wanted[1], wanted[2], wanted[3]})
      return {};
    std::swap(wanted[2], wanted[3]);
    return layer.output.shape == wanted ? rows->inputs.at(0) : std::string();
  }

  /// Returns the constant of a layer that does not train it, else null.
  [[nodiscard]] const Tensor* fixed(const std::string& node) const {
    const Layer* layer = op_.made(node);
    if (!is(layer, "parameter") || layer->options.value_or("trained", true)) return nullptr;
    return &layer->values.at(0).value;
  }

  [[nodiscard]] bool is_hidden(const std::string& node) const {
    const Tensor* value = fixed(node);
    return value != nullptr &&
           std::ranges::all_of(value->to_vector<float>(), [](float v) { return v <= kHidden; });
  }

  bool take_mask(const std::string& node) {
    if (const Tensor* value = fixed(node); value != nullptr && is_causal(*value)) return causal = true;
    if (takes_gradient(node)) return false;
    masks.push_back(op_.made(node)->output);
    return true;
  }

  /// Adds a mask from a condition. `hidden` is the truth value that hides a key.
  bool take_condition(const std::string& node, bool hidden) {
    if (const Tensor* value = fixed(node)) {
      auto numbers = value->to_vector<float>();
      for (float& v : numbers) v = (v != 0) == hidden ? kLowest : 0;
      const Tensor mask = Tensor::from(numbers, value->shape());
      if (is_causal(mask)) return causal = true;
      masks.push_back(op_.parameter(mask, Shape(mask.shape().begin() + 1, mask.shape().end()), false));
      return true;
    }
    if (takes_gradient(node)) return false;
    const ImportValue condition = op_.made(node)->output;
    const ImportValue seen = op_.parameter(Tensor::zeros({1}), {1}, false),
                      not_seen = op_.parameter(Tensor::full({1}, double{kLowest}), {1}, false);
    masks.push_back(
        op_.layer("where", {}, {condition, hidden ? not_seen : seen, hidden ? seen : not_seen}, {}, "mask"));
    return true;
  }

  /// Whether query i sees exactly keys 0 to i, with equal numbers of queries and keys.
  [[nodiscard]] bool is_causal(const Tensor& mask) const {
    const std::int64_t queries = size_.end()[-2], keys = size_.end()[-1];
    if (queries != keys || queries < 2 || mask.numel() != queries * keys || mask.dim(-1) != keys)
      return false;
    const auto values = mask.to_vector<float>();
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j) {
        const float v = values[static_cast<std::size_t>(i * keys + j)];
        if (j <= i ? v != 0 : v > kHidden) return false;
      }
    return true;
  }

  /// Whether the value depends on trained parameters. Values from the data do not.
  [[nodiscard]] bool takes_gradient(const std::string& node) const {
    std::set<std::string> seen{"input"};
    std::vector<std::string> open{node};
    while (!open.empty()) {
      const Layer* layer = op_.made(open.back());
      open.pop_back();
      if (layer == nullptr) return true;
      if (!layer->values.empty() && fixed(layer->output.node) == nullptr) return true;
      for (const auto& input : layer->inputs)
        if (seen.insert(input).second) open.push_back(input);
    }
    return false;
  }

  const OpImport& op_;
  Shape size_;
};

/// Reshapes to [B, .., L, D] with one axis of heads.
ImportValue with_heads(const OpImport& op, const ImportValue& x, const std::string& suffix) {
  const Shape& s = x.shape;
  return s.size() == 4 ? x : op.reshaped(x, {s[0], 1, s[1], s[2]}, suffix);
}

}  // namespace

NodeOptions attention_options(const Shape& q, double scale, bool causal) {
  NodeOptions options;
  if (causal) options["causal"] = true;
  // The factor of the file is rounded to f32.
  const double usual = 1 / std::sqrt(double(q.back()));
  if (std::abs(scale - usual) > 1e-6 * usual) options["scale"] = scale;
  return options;
}

std::optional<ImportValue> match_attention(const OpImport& op, const ImportValue& p, const ImportValue& v) {
  Scores scores(op);
  const auto [weights, grid] = remove_mark(op, p);
  if (v.fixed || batch_axis(v.shape) != 0 || !scores.read(weights)) return std::nullopt;
  const Shape &q = scores.q.shape, &k = scores.k.shape;
  const std::size_t rank = q.size();
  const bool fits = (rank == 3 || rank == 4) && k.size() == rank && v.shape.size() == rank &&
                    !scores.q.fixed && !scores.k.fixed && batch_axis(q) == 0 && batch_axis(k) == 0 &&
                    std::equal(q.begin(), q.end() - 2, k.begin()) &&
                    std::equal(q.begin(), q.end() - 2, v.shape.begin());
  // A mask [N, L, S] of values without an axis of heads would broadcast its samples along the heads.
  if (!fits || (rank == 3 && !std::ranges::all_of(scores.masks, &ImportValue::fixed))) return std::nullopt;
  std::vector<ImportValue> inputs{with_heads(op, scores.q, "queries"), with_heads(op, scores.k, "keys"),
                                  with_heads(op, v, "values")};
  if (!scores.masks.empty()) {
    ImportValue mask = scores.masks[0];
    for (std::size_t i = 1; i < scores.masks.size(); ++i)
      mask = op.layer("add", {}, {mask, scores.masks[i]}, {}, "masks");
    inputs.push_back(mask);
  }
  op.recognise("attention");
  ImportValue y =
      op.layer("scaled_dot_product_attention", attention_options(q, scores.scale, scores.causal), inputs);
  if (grid >= 0) y = mark_weights_grid(op, y, grid);
  return rank == 4 ? y : op.reshaped(y, {q[0], q[1], v.shape[2]}, "rows");
}

}  // namespace fq::detail::onnx_ops

namespace fq::detail {

std::optional<OnnxNode> find_without_nan(const GraphView& graph, const OnnxNode& last) {
  if (last.op != "Where" || last.inputs.size() != 3) return std::nullopt;
  const auto* test = graph.maker(last.inputs[0], "IsNaN", 1);
  const std::string& x = last.inputs[2];
  const bool fits = test != nullptr && test->inputs[0] == x && graph.number(last.inputs[1]) == 0.0 &&
                    graph.maker(x, "Softmax", 1) != nullptr;
  return fits ? std::optional(pattern_node(last, "Identity", {x})) : std::nullopt;
}

}  // namespace fq::detail
