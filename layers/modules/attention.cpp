#include "fakequant/layers/modules/attention.h"

#include <algorithm>
#include <tuple>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/attention.h"
#include "fakequant/core/ops/detail/attention_blocks.h"
#include "fakequant/core/ops/detail/tiled_attention.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/detail/attend_by_products.h"
#include "fakequant/layers/modules/detail/init.h"
#include "fakequant/layers/modules/detail/joined_linears.h"

namespace fq {
namespace {

// Returns the checked options with defaults filled in: 0 means "as the others" for sizes.
AttentionOptions whole(AttentionOptions o) {
  FQ_CHECK(o.width > 0 && o.heads > 0 && o.kv_heads >= 0 && o.head_size >= 0 && o.memory_width >= 0,
           "attention", "a width of {}, {} heads, {} of keys of {} and {}: use 1 or more", o.width, o.heads,
           o.kv_heads, o.head_size, o.memory_width);
  FQ_CHECK(o.head_size > 0 || o.width % o.heads == 0, "attention",
           "a width of {} is not divisible by {} heads: use a divisor, or give head_size", o.width, o.heads);
  if (o.head_size == 0) o.head_size = o.width / o.heads;
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.memory_width == 0) o.memory_width = o.width;
  FQ_CHECK(o.heads % o.kv_heads == 0, "attention", "{} heads cannot share {} of keys: use a divisor of {}",
           o.heads, o.kv_heads, o.heads);
  FQ_CHECK(!o.rotary || o.head_size % 2 == 0, "attention",
           "rotary positions need an even head size: it is {}", o.head_size);
  FQ_CHECK(o.rotary_base > 0 && o.qk_norm >= 0, "attention",
           "rotary_base is {}, qk_norm {}: use more than 0, and an eps of 0 or more", o.rotary_base,
           o.qk_norm);
  check_rotary_scaling(o.rotary_scaling);
  FQ_CHECK(o.dropout >= 0 && o.dropout < 1, "attention", "dropout is {}: use 0 to less than 1", o.dropout);
  if (!o.out_bias) o.out_bias = o.bias;
  return o;
}

}  // namespace

Attention::Attention(const AttentionOptions& options)
    : options_(whole(options)), joined_(std::make_shared<detail::JoinedLinears>()) {
  const auto& o = options_;
  // Names and shapes follow Hugging Face: k_proj and v_proj have kv_heads heads and read the memory.
  const auto projection = [&](const char* name, std::int64_t in, std::int64_t out, bool last = false) {
    return add_module(name, std::make_shared<Linear>(in, out, last ? *o.out_bias : o.bias));
  };
  q_ = projection("q_proj", o.width, o.heads * o.head_size);
  k_ = projection("k_proj", o.memory_width, o.kv_heads * o.head_size);
  v_ = projection("v_proj", o.memory_width, o.kv_heads * o.head_size);
  out_ = projection("out_proj", o.heads * o.head_size, o.width, true);
  if (o.qk_norm == 0) return;
  q_norm_ = add_module("q_norm", std::make_shared<RmsNorm>(Shape{o.head_size}, o.qk_norm));
  k_norm_ = add_module("k_norm", std::make_shared<RmsNorm>(Shape{o.head_size}, o.qk_norm));
}

Attention::Attention(Adopt, const Attention& other)
    : options_(other.options_), joined_(std::make_shared<detail::JoinedLinears>()) {
  adopt(other);
  q_ = Child<Linear>(shared(other, "q_proj"));
  k_ = Child<Linear>(shared(other, "k_proj"));
  v_ = Child<Linear>(shared(other, "v_proj"));
  out_ = Child<Linear>(shared(other, "out_proj"));
  if (options_.qk_norm == 0) return;
  q_norm_ = Child<RmsNorm>(shared(other, "q_norm"));
  k_norm_ = Child<RmsNorm>(shared(other, "k_norm"));
}

/// Returns the child of `other` with that name, in a slot of this layer.
std::shared_ptr<detail::Slot> Attention::shared(const Attention& other, std::string_view name) {
  const auto find_slot = [&](const Attention& layer) {
    const auto slots = layer.named_slots();
    return std::ranges::find(slots, name, [](const auto& slot) { return slot.first; })->second;
  };
  add_module(std::string(name), find_slot(other)->module);
  return find_slot(*this);
}

std::string Attention::describe() const {
  const auto& o = options_;
  return fmt::format("{}, {} heads of {}{}{}{}{}{}", o.width, o.heads, o.head_size,
                     o.kv_heads == o.heads ? "" : fmt::format(", {} of keys", o.kv_heads),
                     o.causal ? ", causal" : "", o.rotary ? ", rotary" : "",
                     o.rotary_scaling.kind == RotaryScaling::Kind::none
                         ? ""
                         : fmt::format(" ({})", name(o.rotary_scaling.kind)),
                     o.qk_norm > 0 ? ", normalised" : "");
}

/// Transposes [N, L, heads * size] to [N, heads, L, size].
Variable Attention::split_heads(const Variable& x, std::int64_t heads) const {
  return ops::transpose(ops::reshape(x, {x.dim(0), x.dim(1), heads, options_.head_size}), {0, 2, 1, 3});
}

Attention::Heads Attention::projected(const Variable& x, const Variable& memory) const {
  Heads heads{split_heads(q_(x), options_.heads), split_heads(k_(memory), options_.kv_heads),
              split_heads(v_(memory), options_.kv_heads)};
  if (options_.qk_norm > 0) {
    heads.q = q_norm_(heads.q);
    heads.k = k_norm_(heads.k);
  }
  // Rotations before quantization: the cache then holds rotated keys, which later tokens do not turn again.
  if (options_.rotary) {
    const ops::Rotary turn = rotation(x.dim(1));
    heads.q = ops::rotary(heads.q, turn);
    heads.k = ops::rotary(heads.k, turn);
  }
  return heads;
}

ops::Rotary Attention::rotation(std::int64_t tokens) const {
  // With a cache, x continues after the tokens that the layer has seen.
  const std::int64_t first = state_ == nullptr ? 0 : state_->tokens();
  const RotaryScaling& scaling = options_.rotary_scaling;
  ops::Rotary turn{.base = options_.rotary_base, .first = first, .magnitude = rotary_magnitude(scaling)};
  if (scaling.kind != RotaryScaling::Kind::none)
    turn.frequencies = rotary_frequencies(scaling, options_.rotary_base, options_.head_size, first + tokens);
  return turn;
}

Variable Attention::forward(const std::vector<Variable>& inputs) {
  FQ_CHECK(!inputs.empty() && inputs.size() <= 3, "attention",
           "{} inputs: use one, two with an input for the keys, or three with a mask", inputs.size());
  const Variable &x = inputs[0], &memory = inputs.size() > 1 ? inputs[1] : x;
  FQ_CHECK(x.rank() == 3 && memory.rank() == 3, "attention",
           "the input is {}, the input for the keys {}: use [N, L, width]", to_string(x.shape()),
           to_string(memory.shape()));
  FQ_CHECK(state_ == nullptr || (options_.causal && inputs.size() == 1), "attention",
           "a KV cache requires causal attention with one input: this layer has {} inputs{}", inputs.size(),
           options_.causal ? "" : " and is not causal");
  // One operator on [N, L, heads * D] avoids the transposes of heads.
  if (attends_rows(inputs.size() > 2))
    if (const Variable y = attend_rows(x, memory); y.defined()) return out_(y);
  Heads heads = quantize_heads(projected(x, memory));
  // After the quantizers, so that the cache holds codes.
  if (state_ != nullptr) std::tie(heads.k, heads.v) = state_->extended(heads.k, heads.v);
  const Variable y = attend(heads, inputs.size() > 2 ? inputs[2] : Variable());
  return out_(ops::reshape(ops::transpose(y, {0, 2, 1, 3}),
                           {x.dim(0), x.dim(1), options_.heads * options_.head_size}));
}

// A trace needs the operators of heads, which exporters know.
bool Attention::attends_rows(bool masked) const {
  const AttentionOptions& o = options_;
  const bool plain = o.qk_norm == 0 && state_ == nullptr;
  return plain && !masked && (o.dropout == 0 || !training()) && is_plain() && recorder() == nullptr;
}

Variable Attention::attend_rows(const Variable& x, const Variable& memory) const {
  const ops::AttentionOptions options{.causal = options_.causal};
  if (memory.node() == x.node())
    if (Variable all = joined_->products(x, {q_.get(), k_.get(), v_.get()}); all.defined()) {
      const std::int64_t turned = options_.heads + options_.kv_heads;
      if (options_.rotary) all = detail::rotary_of_rows(all, turned, options_.head_size, rotation(x.dim(1)));
      return detail::attention_of_packed(all, options_.heads, options_.kv_heads, options);
    }
  if (options_.rotary) return {};
  return detail::attention_of_rows(q_(x), k_(memory), v_(memory), options_.heads, options);
}

Variable Attention::attend(const Heads& heads, const Variable& mask) const {
  const ops::AttentionOptions options{.causal = options_.causal};
  if (options_.dropout == 0 || !training())
    return ops::scaled_dot_product_attention(heads.q, heads.k, heads.v, options, mask);
  if (auto y = detail::attention_with_dropout(heads.q, heads.k, heads.v, options_.dropout, options, mask))
    return *y;
  return detail::attend_by_products(heads.q, heads.k, heads.v, {.dropout = options_.dropout}, options, mask);
}

Positions::Positions(std::int64_t context, std::int64_t width) {
  FQ_CHECK(context > 0 && width > 0, "positions", "{} positions of {}: use 1 or more", context, width);
  weight_ = add_parameter("weight", detail::init_uniform({context, width}, width));
}

std::string Positions::describe() const { return fmt::format("{} x {}", weight_.dim(0), weight_.dim(1)); }

Variable Positions::forward(const Variable& x) {
  FQ_CHECK(x.rank() == 3 && x.dim(2) == weight_.dim(1), "positions", "the input is {}: use [N, L, {}]",
           to_string(x.shape()), weight_.dim(1));
  const std::int64_t first = state_ == nullptr ? 0 : state_->tokens(), end = first + x.dim(1);
  FQ_CHECK(end <= weight_.dim(0), "positions",
           "the input has {} tokens, the model's context is {}: use windows of at most that, or a model of a "
           "longer context",
           end, weight_.dim(0));
  // Attention layers advance their state when they append keys; this layer stores no keys.
  if (state_ != nullptr) state_->advance(x.dim(1));
  return ops::add(x, ops::slice(weight_, 0, first, end));
}

}  // namespace fq
