#include "fakequant/core/ops/detail/operator.h"

namespace fq::detail {

Floats floats(const Variable& x, std::string_view op) {
  FQ_CHECK(x.defined(), op, "an input is undefined");
  Floats out{x.as_float(), {}};
  out.tensor = std::get<Tensor>(out.variable.value());
  FQ_CHECK(out.tensor.defined(), op, "an input is an undefined tensor");
  FQ_CHECK(out.tensor.dtype() == DType::f32 || out.tensor.dtype() == DType::f64, op,
           "an input is {}: use f32 or f64", out.tensor.describe());
  return out;
}

Floats matching_floats(const Variable& x, const Tensor& first, std::string_view op) {
  Floats out = floats(x, op);
  FQ_CHECK(out.tensor.dtype() == first.dtype() && out.tensor.device() == first.device(), op,
           "an input is {}, another {}: dtype and device must agree", out.tensor.describe(),
           first.describe());
  return out;
}

Tensor empty_like(const Tensor& x) { return empty_like(x, x.layout()); }
Tensor empty_like(const Tensor& x, Layout layout) {
  return Tensor::empty(x.shape(), x.dtype(), x.device(), layout);
}

bool is_plain(const QuantizedTensor& x) {
  return x.grid.format.is_integer() && x.grid.granularity.is_per_tensor();
}
// The kernels have no elements of 4 bits, and the scales of blocks or channels would have to move with the
// codes.
bool is_movable(const QuantizedTensor& x) {
  return x.grid.granularity.is_per_tensor() && bit_width(x.codes.dtype()) >= 8;
}
QuantizedTensor with_codes(const QuantizedTensor& x, Tensor codes) { return {std::move(codes), x.grid, {}}; }

namespace {

bool is_whole_number(const Tensor& x) {
  return x.defined() && !is_floating(x.dtype()) && !is_storage_only(x.dtype()) && x.dtype() != DType::u1;
}

/// Sets how backward recomputes y, which is x moved: from the recomputed x, if x can be recomputed.
template <class T>
Variable moved_again(Variable y, const Variable& x, const Move& move) {
  const Again again = recompute_function(x);
  if (is_of_codes(x)) y = made_of_codes(std::move(y));
  if (!again) return y;
  return with_recompute(std::move(y), [again, move] { return Value(moved(std::get<T>(again()), move)); });
}

Tensor mixed(const Tensor& x, int axis, const AxisMix& mix) {
  Shape shape = x.shape();
  shape[static_cast<std::size_t>(axis)] = mix.rows();
  Tensor y = Tensor::empty(shape, x.dtype(), x.device(), x.layout());
  run(y.device(), &Kernels::mix, x, axis, mix, y);
  return y;
}

}  // namespace

Variable record_move(std::string_view op, const Variable& x, const Move& move, Attributes attributes) {
  const auto backward = [move, from = x.shape()](const Tensor& dy) {
    return std::vector<Tensor>{moved_back(dy, move, from)};
  };
  // Rearranging commutes with every elementwise function. Codes and sums therefore move without rounding, and
  // the layers around a reshape or a slice stay in integers.
  if (const auto* codes = x.quantized(); codes != nullptr && is_movable(*codes))
    return record(op, with_codes(*codes, moved(codes->codes, move)), {x}, backward, std::move(attributes));
  if (const auto* sums = x.accumulator(); sums != nullptr && !sums->is_deferred())
    return moved_again<Accumulator>(record(op, moved(*sums, move), {x}, backward, std::move(attributes)), x,
                                    move);
  if (const auto* ids = std::get_if<Tensor>(&x.value()); ids != nullptr && is_whole_number(*ids))
    return record(op, moved(*ids, move), {x}, Backward(), std::move(attributes));
  const auto read = floats(x, op);
  return moved_again<Tensor>(
      record(op, moved(read.tensor, move), {read.variable}, backward, std::move(attributes)), read.variable,
      move);
}

Variable before_transpose(const Variable& x, const std::vector<int>& axes) {
  const Accumulator* sums = x.defined() && recorder() == nullptr ? x.accumulator() : nullptr;
  const auto* moved = sums != nullptr && !sums->relu ? std::get_if<AccumulatorMove>(&sums->value) : nullptr;
  const auto* transpose = moved != nullptr ? std::get_if<PermuteMove>(&moved->move) : nullptr;
  if (transpose == nullptr || transpose->axes != axes) return {};
  auto node = std::make_shared<Node>();
  node->value = moved->inner.front();
  node->leaf = false;
  if (const auto& gradient = x.node()->gradient) {
    if (gradient->op != "transpose") return {};
    node->gradient = gradient->inputs.front();
  }
  return Variable::from_node(std::move(node));
}

// Window i covers floor(i * from / to) up to ceil((i + 1) * from / to), as in PyTorch; windows may overlap.
AxisMix adaptive_shares(std::int64_t from, std::int64_t to) {
  AxisMix mix;
  for (std::int64_t i = 0; i < to; ++i) {
    const std::int64_t begin = i * from / to, end = ((i + 1) * from + to - 1) / to;
    for (std::int64_t k = begin; k < end; ++k) mix.add(k, 1.0 / static_cast<double>(end - begin));
    mix.end_row();
  }
  return mix;
}

Variable record_mix(std::string_view op, const Floats& x, int axis, AxisMix mix) {
  const auto backward = [back = mix.transposed(x.tensor.dim(axis)), axis](const Tensor& dy) {
    return std::vector<Tensor>{mixed(dy, axis, back)};
  };
  return record(op, mixed(x.tensor, axis, mix), {x.variable}, backward);
}

}  // namespace fq::detail
