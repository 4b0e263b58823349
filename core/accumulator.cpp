#include "fakequant/core/accumulator.h"

#include <algorithm>
#include <utility>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/deferred.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/detail/quantizer_checks.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"
#include "fakequant/core/profile.h"

namespace fq {
namespace {

using detail::Kernels;

// A vector breaks the recursion of the types: an accumulator holds accumulators. AccumulatorMove has exactly
// one.
const Accumulator& first(const std::vector<Accumulator>& parts) {
  FQ_CHECK(!parts.empty(), "accumulator", "it has no parts");
  return parts.front();
}

/// Returns the tensor that has the accumulator's shape, layout and device. There is none for deferred floats.
const Tensor& body(const Accumulator& x) {
  struct Visitor {
    const Tensor& operator()(const ProductSums& v) const { return v.sums; }
    const Tensor& operator()(const NormalizedSums& v) const { return v.sums; }
    const Tensor& operator()(const PooledSums& v) const { return v.sums; }
    const Tensor& operator()(const Averages& v) const { return v.values; }
    const Tensor& operator()(const CodeAddition& v) const { return v.a.codes; }
    const Tensor& operator()(const AccumulatorConcat& v) const { return body(first(v.parts)); }
    const Tensor& operator()(const AccumulatorMove& v) const { return body(first(v.inner)); }
    const Tensor& operator()(const DeferredFloats&) const {
      static const Tensor none;
      return none;
    }
  };
  return std::visit(Visitor{}, x.value);
}

detail::Deferred* deferred(const Accumulator& x) {
  const auto* floats = std::get_if<DeferredFloats>(&x.value);
  return floats != nullptr ? floats->result.get() : nullptr;
}

}  // namespace

Shape Accumulator::shape() const {
  if (const auto* later = deferred(*this)) return later->shape();
  if (const auto* move = std::get_if<AccumulatorMove>(&value))
    return moved_shape(first(move->inner).shape(), move->move);
  Shape shape = body(*this).shape();
  if (const auto* concat = std::get_if<AccumulatorConcat>(&value)) {
    const auto axis = static_cast<std::size_t>(concat->axis);
    shape = first(concat->parts).shape();
    for (std::size_t i = 1; i < concat->parts.size(); ++i) shape[axis] += concat->parts[i].shape()[axis];
  }
  return shape;
}

Layout Accumulator::layout() const {
  if (const auto* later = deferred(*this)) return later->layout();
  if (const auto* move = std::get_if<AccumulatorMove>(&value))
    return moved_layout(first(move->inner).layout(), move->move);
  if (const auto* concat = std::get_if<AccumulatorConcat>(&value)) return first(concat->parts).layout();
  return body(*this).layout();
}
Device Accumulator::device() const {
  const auto* later = deferred(*this);
  return later != nullptr ? later->device() : body(*this).device();
}

bool Accumulator::any_relu() const {
  const auto any = [](const std::vector<Accumulator>& parts) {
    return std::ranges::any_of(parts, &Accumulator::any_relu);
  };
  if (relu) return true;
  if (const auto* concat = std::get_if<AccumulatorConcat>(&value)) return any(concat->parts);
  const auto* move = std::get_if<AccumulatorMove>(&value);
  return move != nullptr && any(move->inner);
}

namespace {

/// Returns a part with the ReLU of its enclosing accumulator added.
Accumulator with_relu(Accumulator part, bool relu) {
  part.relu = part.relu || relu;
  return part;
}

/// Returns a mask with all bits set.
Tensor full_mask(const Accumulator& x) {
  Tensor out = Tensor::empty(x.shape(), DType::u1, x.device(), x.layout());
  const auto bytes = static_cast<std::size_t>(out.nbytes());
  if (bytes > 0)
    detail::run(out.device(), &Kernels::fill_bytes, out.mutable_raw(), 0xFF, bytes, out.device());
  return out;
}

QuantizedTensor requantize_parts(const AccumulatorConcat& x, bool relu, const Grid& grid, bool with_mask) {
  std::vector<Tensor> codes, masks;
  for (const auto& part : x.parts) {
    auto rounded = requantize(with_relu(part, relu), grid, with_mask);
    codes.push_back(std::move(rounded.codes));
    masks.push_back(std::move(rounded.mask));
  }
  // All parts round to one grid, so their codes can be concatenated without rounding again.
  return {detail::join(codes, x.axis), grid, with_mask ? detail::join(masks, x.axis) : Tensor()};
}

QuantizedTensor requantize_moved(const AccumulatorMove& x, bool relu, const Grid& grid, bool with_mask) {
  const auto inner = requantize(with_relu(first(x.inner), relu), grid, with_mask);
  return {moved(inner.codes, x.move), grid, with_mask ? moved(inner.mask, x.move) : Tensor()};
}

Tensor float_parts(const AccumulatorConcat& x, bool relu, Tensor* mask) {
  std::vector<Tensor> values, masks;
  for (const auto& each : x.parts) {
    const Accumulator part = with_relu(each, relu);
    Tensor own;
    values.push_back(to_float(part, mask != nullptr ? &own : nullptr));
    // A part without a ReLU passes every gradient.
    if (mask != nullptr) masks.push_back(own.defined() ? own : full_mask(part));
  }
  if (mask != nullptr) *mask = detail::join(masks, x.axis);
  return detail::join(values, x.axis);
}

Tensor moved_floats(const AccumulatorMove& x, bool relu, Tensor* mask) {
  const Tensor values = to_float(with_relu(first(x.inner), relu), mask);
  if (mask != nullptr) *mask = moved(*mask, x.move);
  return moved(values, x.move);
}

void check_defined(const Accumulator& x, const char* function) {
  FQ_CHECK(deferred(x) != nullptr || body(x).defined(), function, "the sums are undefined");
}

}  // namespace

Tensor to_float(const Accumulator& x, Tensor* mask) {
  const ProfileScope profile("epilogue");
  check_defined(x, "to_float");
  // Without a ReLU every gradient passes: an undefined mask saves memory and a kernel.
  if (!x.any_relu()) mask = nullptr;
  if (auto* later = deferred(x)) return later->floats();
  if (const auto* concat = std::get_if<AccumulatorConcat>(&x.value))
    return float_parts(*concat, x.relu, mask);
  if (const auto* move = std::get_if<AccumulatorMove>(&x.value)) return moved_floats(*move, x.relu, mask);
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.device(), x.layout());
  if (mask != nullptr) *mask = Tensor::empty(out.shape(), DType::u1, out.device(), out.layout());
  detail::run(out.device(), &Kernels::accumulator_values, x, out, mask);
  return out;
}

Accumulator moved(Accumulator x, const Move& move) {
  const auto* again = std::get_if<ReshapeMove>(&move);
  const auto* before = std::get_if<AccumulatorMove>(&x.value);
  if (again != nullptr && before != nullptr && std::holds_alternative<ReshapeMove>(before->move))
    // A reshape keeps the logical order, so the second one alone gives the result of both.
    x = with_relu(before->inner.at(0), x.relu);
  if (again != nullptr && x.shape() == again->shape) return x;
  // The ReLU moves to the result, which is equivalent: a move only rearranges elements.
  const bool relu = std::exchange(x.relu, false);
  return {AccumulatorMove{{std::move(x)}, move}, relu};
}

QuantizedTensor requantize(const Accumulator& x, const Grid& grid, bool with_mask) {
  const ProfileScope profile("epilogue");
  check_defined(x, "requantize");
  FQ_CHECK(grid.format.is_integer() && grid.granularity.is_per_tensor(), "requantize",
           "{} is {} {}: accumulators round to one integer grid", detail::quantizer_label(grid.name),
           to_string(grid.format), to_string(grid.granularity));
  if (const auto* concat = std::get_if<AccumulatorConcat>(&x.value))
    return requantize_parts(*concat, x.relu, grid, with_mask);
  if (const auto* move = std::get_if<AccumulatorMove>(&x.value))
    return requantize_moved(*move, x.relu, grid, with_mask);
  QuantizedTensor out{{}, grid, {}};
  out.codes = Tensor::empty(x.shape(), grid.format.code_dtype(), x.device(), x.layout());
  if (with_mask) out.mask = Tensor::empty(out.shape(), DType::u1, x.device(), out.layout());
  detail::check_device(grid, out.codes, "requantize");
  if (auto* later = deferred(x))
    later->codes(out, detail::nan_message(grid));
  else
    detail::run(x.device(), &Kernels::accumulator_codes, x, out, detail::nan_message(grid));
  return out;
}

Tensor bias_codes(const Tensor& b, const Tensor& scale, std::int64_t largest_sum,
                  const std::string& nan_text) {
  Tensor out = Tensor::empty(b.shape(), DType::i32, b.device());
  // bias_room is what `largest_sum` leaves of int32 for the bias.
  detail::run(b.device(), &Kernels::bias_codes, b.to(DType::f32), scale, detail::bias_room(largest_sum),
              nan_text, out);
  return out;
}

}  // namespace fq
