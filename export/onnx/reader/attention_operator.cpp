// ONNX's operator Attention: one layer, or matrix products if it caps or returns its scores.

#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/core/ops/elementwise.h"
#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

constexpr float kHides = std::numeric_limits<float>::lowest();
constexpr float kHidesFrom = -1e9F;  // a score plus this has no attention weight
constexpr std::int64_t kMostOfMask = std::int64_t{1} << 26;

enum Input : std::size_t { query, key, value, mask, past_key, past_value, lengths };
enum ScoresMode : std::int64_t { products, capped, masked, weights };

/// Reshapes rows of concatenated heads [N, L, H * D] to [N, H, L, D].
ImportValue split_heads(const OpImport& op, const ImportValue& x, std::int64_t heads, const char* suffix) {
  if (x.shape.size() == 4) return x;
  op.check(x.shape.size() == 3 && heads > 0 && x.shape[2] % heads == 0, "its input is {}, of {} heads",
           to_string(x.shape), heads);
  const ImportValue apart =
      op.reshaped(x, {x.shape[0], x.shape[1], heads, x.shape[2] / heads}, std::string(suffix) + "_apart");
  return op.layer("transpose", {{"axes", Shape{0, 2, 1, 3}}}, {apart}, {}, suffix);
}

/// Whether the value comes from comparisons or boolean logic, or is a boolean input.
bool is_boolean(const OpImport& op, const std::string& node) {
  const ModelBuilder::Layer* layer = op.made(node);
  if (layer == nullptr) return false;
  const std::string type = layer->type;
  const auto is = [&](std::initializer_list<std::string_view> types) {
    return std::ranges::find(types, type) != types.end();
  };
  const auto reads_boolean = [&](std::size_t i) { return is_boolean(op, layer->inputs.at(i)); };
  if (const auto* row = operator_schema(type); row != nullptr && row->gives_truth) return true;
  if (type == "input_part") return layer->options.value_or("type", std::string()) == "bool";
  if (type == "sign") {
    const ModelBuilder::Layer* size = op.made(layer->inputs.at(0));
    return size != nullptr && size->type == "abs";
  }
  if (is({"multiply", "maximum"})) return reads_boolean(0) && reads_boolean(1);
  return is({"reshape", "flatten", "transpose", "expand", "slice", "index_select", "neg", "shift"}) &&
         reads_boolean(0);
}

/// Reads one node and builds its layers.
class AttentionNode {
 public:
  explicit AttentionNode(const OpImport& op) : op_(op), cap_(op.number("softcap", 0)) {
    const std::int64_t heads = op.integer("q_num_heads", 1, 1, 1 << 20),
                       of_keys = op.integer("kv_num_heads", heads, 1, 1 << 20);
    q_ = split_heads(op, op.value(query), heads, "queries");
    k_ = with_past(split_heads(op, op.value(key), of_keys, "keys"), past_key);
    v_ = with_past(split_heads(op, op.value(value), of_keys, "values"), past_value);
    op.check(op.has_input(past_key) == op.has_input(past_value), "it has past keys or past values alone");
    op.check(!op.has_input(past_key) || !op.has_input(lengths),
             "it has past keys and 'nonpad_kv_seqlen': one of both is allowed");
    queries_ = q_.shape[2];
    keys_ = k_.shape[2];
    op.check(queries_ > 0 && keys_ > 0 && queries_ <= kMostOfMask / keys_,
             "it has {} queries and {} keys: products up to {} are supported", queries_, keys_, kMostOfMask);
    scale_ = op.has("scale") ? op.number("scale", 1) : 1 / std::sqrt(double(q_.shape[3]));
    by_products_ = cap_ > 0 || gives(3);
    // Query i has the position offset + i: ONNX numbers queries after the past keys.
    offset_ = op.has_input(past_key) ? keys_ - op.value(key).shape.at(rows() ? 1 : 2) : 0;
  }

  ImportValue build() {
    op_.check(cap_ >= 0, "attribute 'softcap' is {}: 0 or more is needed", cap_);
    read_lengths();
    read_places();
    read_mask();
    op_.give(1, k_);
    op_.give(2, v_);
    ImportValue y = by_products_ ? build_products() : as_layer();
    if (rows_seen_.has_value()) y = op_.layer("multiply", {}, {y, *rows_seen_}, {}, "seen");
    if (!rows()) return y;
    const ImportValue beside = op_.layer("transpose", {{"axes", Shape{0, 2, 1, 3}}}, {y}, {}, "beside");
    return op_.reshaped(beside, {y.shape[0], y.shape[2], y.shape[1] * y.shape[3]}, "rows");
  }

 private:
  [[nodiscard]] bool rows() const { return op_.value(query).shape.size() == 3; }
  [[nodiscard]] bool gives(std::size_t output) const {
    return output < op_.node().outputs.size() && !op_.node().outputs[output].empty();
  }

  ImportValue with_past(const ImportValue& x, std::size_t past) {
    if (!op_.has_input(past)) return x;
    const ImportValue before = op_.is_constant(past) ? op_.each(past) : op_.value(past);
    return op_.layer("concat", {{"axis", 2}}, {before, x}, {}, past == past_key ? "all_keys" : "all_values");
  }

  /// Reads the number of valid keys: a constant, or a computed number per sample.
  void read_lengths() {
    if (!op_.has_input(lengths)) return;
    if (!op_.is_constant(lengths)) {
      const ImportValue& n = op_.value(lengths);
      op_.check(n.shape.size() == 1, "its 'nonpad_kv_seqlen' is {}: [N] is needed", to_string(n.shape));
      lengths_ = op_.reshaped(n, {n.shape[0], 1, 1, 1}, "lengths");
      return;
    }
    const auto given = integer_list(op_, op_.constant(lengths));
    op_.check(!given.empty() && std::ranges::count(given, given[0]) == std::ssize(given) && given[0] >= 0 &&
                  given[0] <= keys_,
              "its 'nonpad_kv_seqlen' is {}: one number up to {} for all samples, or a computed input, is "
              "supported",
              to_string(given), keys_);
    counted_ = given[0];
    offset_ = counted_ - queries_;
  }

  /// Builds the masks of causal order, windows and lengths.
  void read_places() {
    const bool causal = op_.integer("is_causal", 0, 0, 1) == 1;
    const std::int64_t left = op_.integer("left_window_size", -1, -1, kLargestSize),
                       right = op_.integer("right_window_size", -1, -1, kLargestSize);
    if (lengths_.has_value()) return hide_by_lengths(causal, left, right);
    const bool all_count = counted_ < 0 || counted_ == keys_;
    // The causal order of the layer: the last query sees all keys, and there are no windows or lengths.
    if (causal && !by_products_ && left < 0 && all_count && offset_ == keys_ - queries_) {
      causal_ = true;
      return;
    }
    if (!causal && left < 0 && right < 0 && all_count) return;
    hide([&](std::int64_t i, std::int64_t j) {
      const std::int64_t place = i + offset_;
      return (causal && j > place) || (left >= 0 && j < place - left) || (right >= 0 && j > place + right) ||
             (!all_count && j >= counted_);
    });
  }

  template <class F>
  void hide(const F& is_hidden) {
    hides_ = true;
    Tensor places = Tensor::zeros({queries_, keys_});
    for (std::int64_t i = 0; i < queries_; ++i)
      for (std::int64_t j = 0; j < keys_; ++j)
        if (is_hidden(i, j)) places.mutable_data<float>()[i * keys_ + j] = kHides;
    fixed_ = places;
  }

  /// Returns `number` of query i and key j as a constant [1, 1, L, S].
  template <class F>
  ImportValue numbers(const F& number) {
    Tensor out = Tensor::empty({queries_, keys_});
    for (std::int64_t i = 0; i < queries_; ++i)
      for (std::int64_t j = 0; j < keys_; ++j)
        out.mutable_data<float>()[i * keys_ + j] = static_cast<float>(number(i, j));
    return op_.parameter(out, {1, queries_, keys_}, false);
  }

  /// Hides keys by length. Query i of a sample with n keys has the position n - L + i.
  void hide_by_lengths(bool causal, std::int64_t left, std::int64_t right) {
    const auto place = [&](std::int64_t i, std::int64_t j) { return j - i + queries_; };
    ImportValue seen =
        op_.layer("less", {}, {numbers([](auto, auto j) { return j; }), *lengths_}, {}, "counts");
    const auto also = [&](const char* type, const ImportValue& bound) {
      const ImportValue fits = op_.layer(type, {}, {bound, *lengths_}, {}, type);
      seen = op_.layer("multiply", {}, {seen, fits}, {}, "both");
    };
    if (causal) also("less_equal", numbers(place));
    if (left >= 0) also("greater_equal", numbers([&](auto i, auto j) { return place(i, j) + left; }));
    if (right >= 0) also("less_equal", numbers([&](auto i, auto j) { return place(i, j) - right; }));
    computed_.push_back(hidden_where_not(seen));
    rows_seen_ = op_.layer("max", {{"axes", Shape{3}}, {"keep_axes", true}}, {seen}, {}, "any");
  }

  /// Converts a mask of 1 and 0 to numbers to add.
  ImportValue hidden_where_not(const ImportValue& seen) {
    hides_ = true;
    const ImportValue zero = op_.parameter(Tensor::zeros({1}), {1}, false),
                      lowest = op_.parameter(Tensor::full({1}, double{kHides}), {1}, false);
    return op_.layer("where", {}, {seen, zero, lowest}, {}, "mask");
  }

  void read_mask() {
    if (op_.has_input(mask))
      op_.is_constant(mask) ? add_fixed(op_.constant(mask)) : add_computed(op_.value(mask));
    if (!fixed_.defined()) return;
    find_rows_without_keys();
    Shape shape = fixed_.shape();
    if (shape.size() == 4) shape.erase(shape.begin());
    computed_.push_back(op_.parameter(fixed_, shape, false));
  }

  /// Whether a mask of `size` keys hides the keys after them. Before opset 24 a mask of one key broadcasts.
  [[nodiscard]] bool is_padded(std::int64_t size) const { return op_.opset() >= 24 || size > 1; }

  void add_fixed(Tensor given) {
    op_.check(given.rank() >= 1 && given.rank() <= 4 && (given.rank() < 4 || given.dim(0) == 1),
              "its mask is {}: it differs from sample to sample", given.describe());
    op_.check(given.dim(-1) <= keys_ && given.numel() <= kMostOfMask, "its mask is {}, it has {} keys",
              given.describe(), keys_);
    const bool boolean = !is_floating(given.dtype());
    auto numbers = given.to(DType::f32).to_vector<float>();
    for (float& v : numbers) v = boolean ? (v != 0 ? 0 : kHides) : std::max(v, kHides);
    Tensor whole = Tensor::from(numbers, given.shape());
    if (is_padded(given.dim(-1))) whole = widened(whole);
    if (causal_) fixed_ = Tensor::zeros({queries_, keys_});
    const auto all = whole.to_vector<float>();
    hides_ = hides_ || std::ranges::any_of(all, [](float v) { return v <= kHidesFrom; });
    fixed_ = fixed_.defined() ? ops::add(Variable(fixed_), Variable(whole)).tensor() : whole;
  }

  /// Hides keys after the last axis of a mask.
  [[nodiscard]] Tensor widened(const Tensor& x) const {
    const std::int64_t size = x.dim(-1), lines = x.numel() / size;
    if (size == keys_) return x;
    Shape shape = x.shape();
    shape.back() = keys_;
    Tensor out = Tensor::full(shape, double{kHides});
    for (std::int64_t i = 0; i < lines; ++i)
      std::copy_n(x.data<float>() + i * size, size, out.mutable_data<float>() + i * keys_);
    return out;
  }

  void add_computed(ImportValue given) {
    if (is_boolean(op_, given.node)) given = hidden_where_not(given);
    const std::int64_t missing = keys_ - given.shape.back();
    if (is_padded(given.shape.back()) && missing > 0)
      given = op_.layer("pad", {{"before", Shape{0}}, {"after", Shape{missing}}, {"value", -1e30}}, {given},
                        {}, "keys");
    hides_ = true;  // a computed mask may hide keys
    computed_.push_back(given);
  }

  /// Finds queries that see no key. Their output is 0.
  void find_rows_without_keys() {
    Shape shape = fixed_.shape();
    const std::int64_t keys = shape.back(), lines = fixed_.numel() / keys;
    // The layer's own causal order hides further keys.
    const auto follows = [&](std::int64_t line, std::int64_t j) {
      return causal_ && j > line % queries_ + keys_ - queries_;
    };
    shape.back() = 1;
    Tensor seen = Tensor::zeros(shape);
    for (std::int64_t i = 0; i < lines; ++i)
      for (std::int64_t j = 0; j < keys; ++j)
        if (fixed_.data<float>()[i * keys + j] > kHidesFrom && !follows(i, j))
          seen.mutable_data<float>()[i] = 1;
    const auto all = seen.to_vector<float>();
    if (std::ranges::find(all, 0.0F) == all.end()) return;
    while (shape.size() < 3) shape.insert(shape.begin(), 1);
    if (shape.size() == 4) shape.erase(shape.begin());
    const ImportValue rows = op_.parameter(seen, shape, false);
    rows_seen_ = rows_seen_.has_value() ? op_.layer("multiply", {}, {*rows_seen_, rows}, {}, "rows") : rows;
  }

  /// Returns the sum of all masks. No value without masks.
  std::optional<ImportValue> sum_of_masks() {
    if (computed_.empty()) return std::nullopt;
    ImportValue sum = computed_[0];
    for (std::size_t i = 1; i < computed_.size(); ++i)
      sum = op_.layer("add", {}, {sum, computed_[i]}, {}, "masks");
    return sum;
  }

  ImportValue as_layer() {
    // The layer repeats heads of keys and values itself, if there are fewer than heads of queries.
    std::vector<ImportValue> inputs{q_, k_, v_};
    if (const auto sum = sum_of_masks()) inputs.push_back(*sum);
    return op_.layer("scaled_dot_product_attention", attention_options(q_.shape, scale_, causal_), inputs);
  }

  /// Repeats each head of keys or values for the queries that read it.
  ImportValue repeated(const ImportValue& x, const char* suffix) {
    const Shape& s = x.shape;
    const std::int64_t heads = q_.shape[1], times = s[1] > 0 ? heads / s[1] : 0;
    op_.check(s[1] > 0 && heads % s[1] == 0, "it has {} heads of queries and {} of keys", heads, s[1]);
    if (times == 1) return x;
    const ImportValue apart = op_.reshaped(x, {s[0], s[1], 1, s[2], s[3]}, std::string(suffix) + "_apart");
    const ImportValue all = op_.layer("expand", {{"shape", Shape{s[1], times, s[2], s[3]}}}, {apart}, {},
                                      std::string(suffix) + "_all");
    return op_.reshaped(all, {s[0], heads, s[2], s[3]}, suffix);
  }

  ImportValue build_products() {
    const std::int64_t mode = op_.integer("qk_matmul_output_mode", 0, 0, 3);
    const ImportValue turned =
        op_.layer("transpose", {{"axes", Shape{0, 1, 3, 2}}}, {repeated(k_, "repeated_keys")}, {}, "turned");
    ImportValue scores = op_.layer("matmul", {}, {q_, turned}, {}, "products");
    scores = op_.layer("scale", {{"factor", scale_}}, {scores}, {}, "scores");
    if (mode == products) op_.give(3, scores);
    if (cap_ > 0) {
      scores = op_.layer("scale", {{"factor", 1 / cap_}}, {scores}, {}, "below_cap");
      scores =
          op_.layer("scale", {{"factor", cap_}}, {op_.layer("tanh", {}, {scores}, {}, "tanh")}, {}, "capped");
    }
    if (mode == capped) op_.give(3, scores);
    const auto sum = sum_of_masks();
    if (mode == masked && gives(3) && hides_)
      op_.unsupported("that returns masked scores, which are infinite ('qk_matmul_output_mode' is 2)");
    if (sum.has_value()) scores = op_.layer("add", {}, {scores, *sum}, {}, "masked");
    if (mode == masked) op_.give(3, scores);
    ImportValue p = op_.layer("softmax", {}, {scores}, {}, "weights");
    if (mode == weights)
      op_.give(3, rows_seen_ ? op_.layer("multiply", {}, {p, *rows_seen_}, {}, "seen_weights") : p);
    return op_.layer("matmul", {}, {p, repeated(v_, "repeated_values")});
  }

  const OpImport& op_;
  const double cap_;  ///< cap of scores; 0: none
  bool by_products_ = false;
  ImportValue q_, k_, v_;
  std::int64_t queries_ = 0, keys_ = 0;
  std::int64_t offset_ = 0;    ///< number of keys before the first query
  std::int64_t counted_ = -1;  ///< number of valid keys of all samples; -1: all keys
  double scale_ = 1;
  bool causal_ = false;  ///< whether the layer's own option hides keys
  bool hides_ = false;   ///< whether a mask may hide keys
  std::optional<ImportValue> lengths_, rows_seen_;
  Tensor fixed_;                       ///< sum of the constant masks
  std::vector<ImportValue> computed_;  ///< computed masks, as layers
};

}  // namespace

ImportValue attention(const OpImport& op) { return AttentionNode(op).build(); }

}  // namespace fq::detail::onnx_ops
