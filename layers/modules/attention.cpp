#include "fakequant/layers/modules/attention.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/attention.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/layers/modules/detail/init.h"

namespace fq {
namespace {

AttentionOptions whole(AttentionOptions o) {
  FQ_CHECK(o.width > 0 && o.heads > 0 && o.kv_heads >= 0 && o.head_size >= 0 && o.memory_width >= 0,
           "attention", "a width of {}, {} heads, {} of keys of {} and {}: use 1 or more", o.width, o.heads,
           o.kv_heads, o.head_size, o.memory_width);
  FQ_CHECK(o.head_size > 0 || o.width % o.heads == 0, "attention",
           "a width of {} has no {} heads of one size: use a divisor of it, or give head_size", o.width,
           o.heads);
  if (o.head_size == 0) o.head_size = o.width / o.heads;
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.memory_width == 0) o.memory_width = o.width;
  FQ_CHECK(o.heads % o.kv_heads == 0, "attention", "{} heads cannot share {} of keys: use a divisor of {}",
           o.heads, o.kv_heads, o.heads);
  FQ_CHECK(!o.rotary || o.head_size % 2 == 0, "attention",
           "rotary positions need an even head size: it is {}", o.head_size);
  return o;
}

}  // namespace

Attention::Attention(const AttentionOptions& options) : options_(whole(options)) {
  const auto& o = options_;
  const auto projection = [&](const char* name, std::int64_t in, std::int64_t out) {
    return add_module(name, std::make_shared<Linear>(in, out, o.bias));
  };
  q_ = projection("q_proj", o.width, o.heads * o.head_size);
  k_ = projection("k_proj", o.memory_width, o.kv_heads * o.head_size);
  v_ = projection("v_proj", o.memory_width, o.kv_heads * o.head_size);
  out_ = projection("out_proj", o.heads * o.head_size, o.width);
}

std::string Attention::describe() const {
  const auto& o = options_;
  return fmt::format("{}, {} heads of {}{}{}{}", o.width, o.heads, o.head_size,
                     o.kv_heads == o.heads ? "" : fmt::format(", {} of keys", o.kv_heads),
                     o.causal ? ", causal" : "", o.rotary ? ", rotary" : "");
}

/// [N, L, heads * size] to [N, heads, L, size].
Variable Attention::heads_of(const Variable& x, std::int64_t heads) const {
  return ops::transpose(ops::reshape(x, {x.dim(0), x.dim(1), heads, options_.head_size}), {0, 2, 1, 3});
}

Variable Attention::forward(const std::vector<Variable>& inputs) {
  FQ_CHECK(!inputs.empty() && inputs.size() <= 3, "attention",
           "{} inputs: give one, two with the keys' own, three with a mask", inputs.size());
  const Variable &x = inputs[0], &memory = inputs.size() > 1 ? inputs[1] : x;
  FQ_CHECK(x.rank() == 3 && memory.rank() == 3, "attention",
           "the input is {}, the keys' {}: give [N, L, width]", to_string(x.shape()),
           to_string(memory.shape()));
  Variable q = heads_of(q_(x), options_.heads), k = heads_of(k_(memory), options_.kv_heads);
  const Variable v = heads_of(v_(memory), options_.kv_heads);
  if (options_.rotary) {
    q = ops::rotary(q);
    k = ops::rotary(k);
  }
  const Variable y = ops::scaled_dot_product_attention(q, k, v, {.causal = options_.causal},
                                                       inputs.size() > 2 ? inputs[2] : Variable());
  return out_(ops::reshape(ops::transpose(y, {0, 2, 1, 3}),
                           {x.dim(0), x.dim(1), options_.heads * options_.head_size}));
}

Positions::Positions(std::int64_t context, std::int64_t width) {
  FQ_CHECK(context > 0 && width > 0, "positions", "{} positions of {}: use 1 or more", context, width);
  weight_ = add_parameter("weight", detail::init_uniform({context, width}, width));
}

std::string Positions::describe() const { return fmt::format("{} x {}", weight_.dim(0), weight_.dim(1)); }

Variable Positions::forward(const Variable& x) {
  FQ_CHECK(x.rank() == 3 && x.dim(2) == weight_.dim(1), "positions", "the input is {}: give [N, L, {}]",
           to_string(x.shape()), weight_.dim(1));
  FQ_CHECK(
      x.dim(1) <= weight_.dim(0), "positions",
      "the input has {} tokens, the model's context is {}: give windows of at most that, or a model of a "
      "longer context",
      x.dim(1), weight_.dim(0));
  return ops::add(x, ops::slice(weight_, 0, 0, x.dim(1)));
}

}  // namespace fq
