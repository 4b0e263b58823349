#include "fakequant/core/variable.h"

#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/leaf_scopes.h"
#include "fakequant/core/tape.h"

namespace fq {
namespace {

const detail::Node& get(const std::shared_ptr<detail::Node>& node) {
  FQ_CHECK(node != nullptr, "variable", "the variable is undefined");
  return *node;
}

std::shared_ptr<detail::Gradient> leaf_gradient(const Shape& shape) {
  auto gradient = std::make_shared<detail::Gradient>();
  gradient->shape = shape;
  return gradient;
}

std::shared_ptr<detail::Node> leaf(Value value) {
  auto node = std::make_shared<detail::Node>();
  node->value = std::move(value);
  return node;
}

}  // namespace

Variable::Variable(Tensor value, bool requires_grad) : node_(leaf(std::move(value))) {
  if (requires_grad) set_requires_grad(true);
}
Variable::Variable(QuantizedTensor value) : node_(leaf(std::move(value))) {}
Variable::Variable(Accumulator value) : node_(leaf(std::move(value))) {}

Variable Variable::from_node(std::shared_ptr<detail::Node> node) {
  Variable out;
  out.node_ = std::move(node);
  return out;
}

// Tracing replaces the values of leaves without writing to the model: see core/detail/leaf_scopes.h.
const std::shared_ptr<detail::Node>& Variable::replacement_node() const noexcept {
  return context().stand_ins->of(node_);
}

const Value& Variable::value() const { return get(node()).value; }

Shape Variable::shape() const {
  return std::visit([](const auto& v) -> Shape { return v.shape(); }, value());
}

std::int64_t Variable::dim(int axis) const {
  const Shape s = shape();
  return s[static_cast<std::size_t>(normalize_axis(axis, static_cast<int>(s.size()), "variable.dim"))];
}

Device Variable::device() const {
  if (const auto* q = quantized()) return q->codes.device();
  if (const auto* a = accumulator()) return a->device();
  return std::get<Tensor>(value()).device();
}

Layout Variable::layout() const {
  return std::visit([](const auto& v) { return v.layout(); }, value());
}

const QuantizedTensor* Variable::quantized() const noexcept {
  const auto& own = node();
  return own ? std::get_if<QuantizedTensor>(&own->value) : nullptr;
}

const Accumulator* Variable::accumulator() const noexcept {
  const auto& own = node();
  return own ? std::get_if<Accumulator>(&own->value) : nullptr;
}

Variable Variable::as_float() const {
  if (std::holds_alternative<Tensor>(value())) return *this;
  // Several threads may read the value: the first one converts it, the others reuse the result.
  const std::scoped_lock lock(node()->mutex);
  // A cached result without a gradient cannot serve a reader that records, nor one whose backward has run.
  const bool with_gradient = detail::needs_grad({*this});
  auto& known = node()->as_float;
  if (known && detail::reusable(*known, with_gradient)) return from_node(known);
  Variable out;
  if (const auto* q = quantized()) {
    // The quantizer that made the codes has masked the gradient already: dequantization passes it on.
    out = detail::record("dequantize", fq::dequantize(*q), {*this}, detail::pass_gradient);
    // Readers that need the floats in backward keep the codes instead: a quarter of the memory for int8.
    if (with_gradient)
      out = detail::with_recompute(
          out, [codes = QuantizedTensor{q->codes, q->grid, {}}] { return Value(fq::dequantize(codes)); });
  } else {
    Tensor mask;
    // The mask of a pending ReLU belongs to this reader: other readers of the sums make their own.
    Tensor values = to_float(*accumulator(), with_gradient ? &mask : nullptr);
    out = detail::record("to_float", std::move(values), {*this}, [mask](detail::BackwardCall& call) {
      call.dy.add_mask(mask);
      return detail::pass_gradient(call);
    });
    if (const auto sums = detail::recompute_function(*this))
      out = detail::with_recompute(out, [sums] { return Value(to_float(std::get<Accumulator>(sums()))); });
  }
  if (node()->of_codes) out = detail::made_of_codes(out);
  known = out.node();
  return out;
}

Tensor Variable::tensor() const { return std::get<Tensor>(as_float().value()); }

bool Variable::requires_grad() const noexcept {
  const auto& own = node();
  return own && own->gradient;
}
bool Variable::is_leaf() const noexcept {
  const auto& own = node();
  return own && own->leaf;
}

void Variable::set_requires_grad(bool on) {
  FQ_CHECK(get(node()).leaf, "requires_grad", "the variable is the result of {}: only leaves can be set",
           node()->gradient ? node()->gradient->op : "an operator");
  if (on == requires_grad()) return;
  node()->gradient = on ? leaf_gradient(shape()) : nullptr;
}

const Tensor& Variable::grad() const {
  // A reference is returned, so an undefined gradient needs an object that outlives the call.
  static const Tensor none;
  const auto& gradient = get(node()).gradient;
  return gradient ? gradient->sum : none;
}
void Variable::set_grad(Tensor grad) {
  FQ_CHECK(requires_grad(), "set_grad",
           "the variable requires no gradient: call set_requires_grad(true) first");
  FQ_CHECK(!grad.defined() || grad.shape() == shape(), "set_grad", "the gradient is {}, the variable {}",
           to_string(grad.shape()), to_string(shape()));
  node()->gradient->sum = std::move(grad);
}
void Variable::zero_grad() {
  if (requires_grad()) node()->gradient->sum = {};
}

void Variable::set_tensor(Tensor value) {
  // The tape node stores the shape of the gradient, so the shape of a leaf is fixed.
  FQ_CHECK(is_leaf() && value.shape() == shape(), "set_tensor",
           "{} cannot replace the value of shape {} of a {}", value.describe(), to_string(shape()),
           is_leaf() ? "leaf" : "result");
  // Replaces the tensor of the leaf. Variables that share the node see the new value.
  node()->value = std::move(value);
}

Tensor& Variable::mutable_tensor() {
  const auto& own = node();
  auto* tensor = own ? std::get_if<Tensor>(&own->value) : nullptr;
  FQ_CHECK(tensor != nullptr && is_leaf(), "mutable_tensor", "only a leaf holding floats can be written to");
  return *tensor;
}

Variable Variable::detach() const { return from_node(leaf(value())); }

}  // namespace fq

namespace fq::detail {

void StandIns::set(const Variable& leaf, Tensor value) {
  FQ_CHECK(leaf.is_leaf() && value.shape() == leaf.shape(), "stand_ins",
           "{} cannot replace the value of shape {} of a {}", value.describe(), to_string(leaf.shape()),
           leaf.is_leaf() ? "leaf" : "result");
  nodes_[leaf.node().get()] = Variable(std::move(value), leaf.requires_grad()).node();
}

const std::shared_ptr<Node>& StandIns::of(const std::shared_ptr<Node>& node) const noexcept {
  // Scopes nest: the inner scope replaces the node that the outer one has put in place.
  const auto& seen = outer_ != nullptr ? outer_->of(node) : node;
  const auto found = nodes_.find(seen.get());
  return found == nodes_.end() ? seen : found->second;
}

}  // namespace fq::detail
