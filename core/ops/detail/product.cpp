#include "fakequant/core/ops/detail/product.h"

#include <algorithm>
#include <limits>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/quantizer_checks.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"
#include "fakequant/core/profile.h"

namespace fq::detail {
namespace {

bool small_integer(const Format& format) { return format.is_integer() && format.bits() <= 8; }

/// Returns the largest magnitude of a code of the format.
std::int64_t largest_code(const IntFormat& format) noexcept {
  return std::max<std::int64_t>(-format.lower(), format.upper());
}

/// Returns the number of significant bits of a code.
int significand(const Format& format) {
  return format.is_integer() ? format.bits() : format.floating().mantissa + 1;
}

// Returns whether every factor is exact in bfloat16, which has 8 significant bits. A code of c bits times a
// scale of s bits has at most c + s significant bits; a power of two (s = 1) adds none.
bool is_factor(const QuantizedTensor& x, int axis) {
  constexpr int bfloat16_bits = 8;
  const int code = significand(x.grid.format), scale = x.grid.scale_bits;
  if (codes_are_factors(x, axis)) return code <= bfloat16_bits;
  return scale > 0 && (scale == 1 ? code : code + scale) <= bfloat16_bits;
}

/// Returns the origin of the sums. Null unless the weight scales are symmetric ranges divided by a bound.
std::shared_ptr<const ProductOrigin> product_origin(const QuantizedTensor& x, const QuantizedTensor& w,
                                                    const Variable& bias, std::int64_t channels,
                                                    std::int64_t largest_sum) {
  const Grid& grid = w.grid;
  const bool symmetric = grid.format.lower() == -grid.format.bound();
  const bool ranges = grid.amax.numel() == 1 || grid.amax.numel() == channels;
  // Batch norm folds into amax and divides by the bound again. This gives the scale of the folded layer only
  // if the scale here is fl(amax / bound).
  if (grid.raised || grid.scale_bits != 0 || !symmetric || !ranges) return nullptr;
  return std::make_shared<const ProductOrigin>(ProductOrigin{
      x.grid.scale, grid.amax, grid.format.bound(), bias.defined() ? bias.tensor() : Tensor(), largest_sum});
}

}  // namespace

bool codes_are_factors(const QuantizedTensor& x, int axis) {
  const auto& by = x.grid.granularity;
  return by.is_per_tensor() || (axis >= 0 && by.single_axis(x.codes.rank()) == axis);
}

Tensor factor_scale(const QuantizedTensor& x, int axis) {
  return codes_are_factors(x, axis)
             ? x.grid.scale
             : Tensor::full({}, static_cast<double>(x.grid.unit), DType::f32, x.codes.device());
}

// One scale for x and one per output channel for w factor out of the sum over k, so the sum has only integer
// codes. Other granularities can still give exact bf16 factors.
CodeKind code_kind(const Variable& x, const Variable& w, int w_axis) {
  const auto* a = x.quantized();
  const auto* b = w.quantized();
  if (a == nullptr || b == nullptr) return CodeKind::floats;
  if (small_integer(a->grid.format) && small_integer(b->grid.format) && codes_are_factors(*a, -1) &&
      codes_are_factors(*b, w_axis))
    return CodeKind::integers;
  return is_factor(*a, -1) && is_factor(*b, w_axis) ? CodeKind::factors : CodeKind::floats;
}

namespace {

/// Scales of a product and, with a bias, the codes of the bias.
struct ProductNumbers {
  Tensor scale, bias;

  ProductNumbers(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis, std::int64_t channels,
                 const Tensor& b, std::int64_t largest_sum) {
    const Tensor s_x = factor_scale(x, -1), s_w = factor_scale(w, w_axis);
    const Device device = x.codes.device();
    scale = Tensor::empty(s_w.numel() == 1 ? Shape{} : Shape{channels}, DType::f32, device);
    if (b.defined()) bias = Tensor::empty(b.shape(), DType::i32, device);
    run(device, &Kernels::product_scale, s_x, s_w, b.defined() ? b.to(DType::f32) : b, bias_room(largest_sum),
        bias_nan_message(w.grid), scale, bias);
  }
};

}  // namespace

Tensor product_scale(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis, std::int64_t channels) {
  return ProductNumbers(x, w, w_axis, channels, {}, 0).scale;
}

std::int64_t largest_sum(const QuantizedTensor& x, const QuantizedTensor& w, std::int64_t terms,
                         std::string_view function) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const std::int64_t product = largest_code(x.grid.format.integer()) * largest_code(w.grid.format.integer());
  // The bound is for the worst case of all codes, so no partial sum overflows in any order of summation.
  FQ_CHECK(terms <= most / product, function,
           "a sum of {} products of {} and {} codes may reach {} * {}: int32 holds {} such terms; use fewer "
           "bits or groups",
           terms, to_string(x.grid.format), to_string(w.grid.format), terms, product, most / product);
  return terms * product;
}

Codes as_codes(const QuantizedTensor& x, const Tensor& codes) {
  return {codes.raw(), codes.dtype(), largest_code(x.grid.format.integer())};
}

Accumulator product_sums(Tensor sums, const QuantizedTensor& x, const QuantizedTensor& w,
                         const Variable& bias, int w_axis, int axis, std::int64_t largest_sum) {
  const std::int64_t channels = sums.dim(axis);
  // `largest_sum` limits the bias code: bias plus sum must fit int32 too.
  const ProductNumbers numbers(x, w, w_axis, channels, bias.defined() ? bias.tensor() : Tensor(),
                               largest_sum);
  return {ProductSums{std::move(sums), numbers.bias, numbers.scale, axis,
                      product_origin(x, w, bias, channels, largest_sum)}};
}

void scale_products(Tensor& y, const Tensor& scale, const Variable& bias) {
  const ProfileScope profile("epilogue");
  if (y.numel() > 0)
    run(y.device(), &Kernels::scale_products, y, scale, bias.defined() ? bias.tensor() : Tensor());
}

namespace {

using Shared = std::shared_ptr<const Product>;

struct Needs {
  bool x, w, bias;
  Rows x_rows;
  Needs(const Variable& a, const Variable& b, const Variable& c)
      : x(a.requires_grad()), w(b.requires_grad()), bias(c.requires_grad()) {
    if (x) x_rows = a.node()->gradient->reads;
  }
};

/// Returns a tensor whose row j is row from[j] of x, or zeros if from[j] is negative.
Tensor select_rows(const Tensor& x, const std::vector<std::int64_t>& from) {
  Shape shape = x.shape();
  shape[0] = static_cast<std::int64_t>(from.size());
  Tensor out = Tensor::empty(shape, x.dtype(), x.device(), x.layout());
  run(x.device(), &Kernels::take, x, 0, from, 0.0, out);
  return out;
}

/// Computes the requested rows of dx, and zeros elsewhere. Computes all rows if the bits of a row depend on
/// the number of rows, as in f32 products.
Tensor product_input_gradient(const Product& p, const Tensor& dy, const Tensor& w, const Rows& rows = {}) {
  const ProfileScope profile("dX");
  const auto count = static_cast<std::size_t>(dy.dim(0));
  const std::size_t row_count = rows ? std::max(rows->size(), p.fewest_rows) : count;
  if (row_count >= count || dy.dtype() != DType::bf16 || !p.same_weights)
    return p.backward_x(dy, p.weight(w));
  // dx = dY * W is independent per row: multiplies only the rows that `reads` names, and scatters the
  // results. Zero rows pad the input to `fewest_rows`, which keeps the order of the sums.
  std::vector<std::int64_t> selected = *rows, target_rows(count, -1);
  selected.resize(row_count, -1);
  for (std::size_t i = 0; i < rows->size(); ++i)
    target_rows[static_cast<std::size_t>((*rows)[i])] = static_cast<std::int64_t>(i);
  return select_rows(p.backward_x(select_rows(dy, selected), p.weight(w)), target_rows);
}
Tensor product_weight_gradient(const Product& p, const Tensor& x, const Tensor& dy) {
  const ProfileScope profile("dW");
  return p.backward_w(p.input(x), dy);
}

/// Converts a gradient of the output to the form of the engine. Its steps stay pending if the product does
/// not move the elements of outputs with the channels innermost.
PendingGradient engine_gradient(const Product& p, PendingGradient dy) {
  const Tensor& values = dy.values;
  if (values.layout() != Layout::channels_last && p.output_axis != values.rank() - 1) dy.evaluate();
  dy.values = p.gradient(values);
  return dy;
}

/// Returns the gradients of x, w and the bias. `Factors` are CodeGradients or FloatGradients.
template <class Factors>
std::vector<PendingGradient> product_gradients(const Product& p, const Factors& factors, const Needs& needs,
                                               PendingGradient gradient) {
  PendingGradient whole = engine_gradient(p, std::move(gradient));
  std::vector<PendingGradient> out(3);
  Tensor& db = out[2].values;
  const Tensor dy = factors.dy(whole, needs.bias ? &db : nullptr);
  if (needs.x) out[0] = product_input_gradient(p, dy, factors.w(), needs.x_rows);
  if (needs.w) out[1] = factors.weight_gradient(product_weight_gradient(p, factors.x(), dy));
  if (needs.bias && !db.defined()) db = bias_gradient(whole.evaluate(), p.channels);
  return out;
}

// Forward multiplies floats. Backward keeps the codes of a quantized factor instead of its floats, which
// takes a quarter of the memory for int8.
Variable float_product(const Shared& p, const Variable& x, const Variable& w, const Variable& bias) {
  const Variable a = x.as_float(), b = w.as_float();
  check_factors(a.tensor(), b.tensor(), p->name);
  Tensor y = p->forward(p->input(a.tensor()), p->weight(b.tensor()));
  add_bias(y, bias);
  const FloatGradients floats(x, w);
  Needs needs(x, w, bias);
  needs.x_rows = {};  // products of floats compute all rows
  auto backward = [p, floats, needs](BackwardCall& call) {
    return product_gradients(*p, floats, needs, std::move(call.dy));
  };
  Variable out = record(p->name, p->output(y), {a, b, bias}, std::move(backward), p->attributes);
  return floats.rounds() ? made_of_codes(std::move(out)) : out;
}

Tensor integer_sums(const Product& p, const QuantizedTensor& x, const QuantizedTensor& w) {
  const Tensor a = p.input(x.codes), b = p.weight(w.codes);
  return p.output(p.exact_sums(as_codes(x, a), as_codes(w, b), x.codes.device()));
}

Value integer_value(const Product& p, const QuantizedTensor& x, const QuantizedTensor& w,
                    const Variable& bias) {
  const std::int64_t largest = largest_sum(x, w, p.terms, p.name);
  return product_sums(integer_sums(p, x, w), x, w, bias, p.weight_axis, p.output_axis, largest);
}

/// Returns how to recompute the sums: multiplies the codes of x and w, which backward keeps anyway.
Again sums_again(const Shared& p, const QuantizedTensor& x, const QuantizedTensor& w, const Value& y) {
  // The closure must not hold the sums that it recomputes.
  ProductSums result = std::get<ProductSums>(std::get<Accumulator>(y).value);
  result.sums = {};
  const auto without_mask = [](const QuantizedTensor& q) { return QuantizedTensor{q.codes, q.grid, {}}; };
  return [p, a = without_mask(x), b = without_mask(w), result] {
    ProductSums out = result;
    out.sums = integer_sums(*p, a, b);
    return Value(Accumulator{std::move(out)});
  };
}

Value factor_value(const Product& p, const QuantizedTensor& x, const QuantizedTensor& w,
                   const Tensor& w_factors, const Variable& bias) {
  return p.output(p.scaled(p.input(code_factor(x, -1, w_factors.dtype())), p.weight(w_factors),
                           product_scale(x, w, p.weight_axis, p.channels), bias));
}

// y is an accumulator (integers) or floats (factors). Both use the backward algebra of BackwardType, which
// reads codes and scales but not y.
Variable code_product(const Shared& p, CodeKind kind, const Variable& x, const Variable& w,
                      const Variable& bias) {
  const QuantizedTensor &a = *x.quantized(), &b = *w.quantized();
  FQ_CHECK(a.codes.device() == b.codes.device(), p->name,
           "the input is on {}, the weight on {}: use both on one device", to_string(a.codes.device()),
           to_string(b.codes.device()));
  const Device device = b.codes.device();
  CodeGradients codes(x, w, p->weight_axis);
  Value y;
  if (kind == CodeKind::integers) {
    y = integer_value(*p, a, b, bias);
  } else {
    const Tensor factors = code_factor(b, p->weight_axis, code_factor_dtype(device));
    // Backward reads the factors of a weight again. Factors of an activation would need too much memory.
    if (device.is_cuda() && p->weight_axis >= 0 && x.requires_grad()) codes.keep_w(factors);
    y = factor_value(*p, a, b, factors, bias);
  }
  auto backward = [p, codes = std::move(codes), needs = Needs(x, w, bias)](BackwardCall& call) {
    return product_gradients(*p, codes, needs, std::move(call.dy));
  };
  const bool again = kind == CodeKind::integers && p->recomputes_sums && needs_grad({x, w, bias});
  Again sums = again ? sums_again(p, a, b, y) : Again();
  return made_of_codes(
      with_recompute(record(p->name, std::move(y), {x, w, bias}, std::move(backward), p->attributes), sums));
}

}  // namespace

Tensor Product::scaled(const Tensor& x, const Tensor& w, const Tensor& scale, const Variable& bias) const {
  Tensor y = forward(x, w);
  scale_products(y, scale, bias);
  return y;
}

Variable apply(Shared product, const Variable& x, const Variable& w, const Variable& bias) {
  const ProfileScope profile("product", "forward");
  check_bias(bias, product->channels, x, product->name);
  const CodeKind kind = code_kind(x, w, product->weight_axis);
  return kind == CodeKind::floats ? float_product(product, x, w, bias)
                                  : code_product(product, kind, x, w, bias);
}

DType product_dtype(const Tensor& factor) { return factor.dtype() == DType::f64 ? DType::f64 : DType::f32; }

void check_factors(const Tensor& x, const Tensor& w, std::string_view function) {
  FQ_CHECK(x.dtype() == w.dtype() && (x.dtype() == DType::f32 || x.dtype() == DType::f64), function,
           "the input is {}, the weight {}: use both as f32, or both as f64", name(x.dtype()),
           name(w.dtype()));
  FQ_CHECK(x.device() == w.device(), function, "the input is on {}, the weight on {}: use both on one device",
           to_string(x.device()), to_string(w.device()));
}

void check_bias(const Variable& bias, std::int64_t channels, const Variable& x, std::string_view function) {
  if (!bias.defined()) return;
  FQ_CHECK(bias.shape() == Shape{channels}, function, "the bias is {}, the output has {} channels: use [{}]",
           to_string(bias.shape()), channels, channels);
  FQ_CHECK(bias.device() == x.device(), function,
           "the bias is on {}, the input on {}: use both on one device", to_string(bias.device()),
           to_string(x.device()));
  const auto* floats = std::get_if<Tensor>(&x.value());
  const DType dtype = floats != nullptr ? floats->dtype() : DType::f32;
  const auto* values = std::get_if<Tensor>(&bias.value());
  FQ_CHECK(values != nullptr && values->dtype() == dtype, function,
           "the bias must have the input's dtype {}: convert it", name(dtype));
}

void multiply(const Factor& a, const Factor& b, Tensor& out, std::int64_t batch, Sharing sharing) {
  run(out.device(), &Kernels::multiply, a, b, out, batch, sharing);
}

void multiply_scaled(const Factor& a, const Factor& b, const Tensor& scale, const Variable& bias,
                     Tensor& out) {
  run(out.device(), &Kernels::multiply_scaled, a, b, scale, bias.defined() ? bias.tensor() : Tensor(), out);
}

Tensor conv_y(const ConvShape& shape, const Tensor& x, const Tensor& w, Sharing sharing) {
  Tensor y = Tensor::empty(shape.y_shape(), product_dtype(x), x.device(), Layout::channels_last);
  run(y.device(), &Kernels::conv_forward, shape, x, w, y, sharing);
  return y;
}

Tensor conv_dx(const ConvShape& shape, const Tensor& dy, const Tensor& w, Sharing sharing) {
  Tensor dx = Tensor::empty(shape.x_shape(), product_dtype(dy), dy.device(), Layout::channels_last);
  run(dx.device(), &Kernels::conv_backward_data, shape, dy, w, dx, sharing);
  return dx;
}

Tensor conv_dw(const ConvShape& shape, const Tensor& x, const Tensor& dy) {
  Tensor dw = Tensor::empty(shape.w_shape(), product_dtype(dy), dy.device());
  run(dw.device(), &Kernels::conv_backward_weights, shape, x, dy, dw);
  return dw;
}

void add_bias(Tensor& y, const Variable& bias) {
  if (bias.defined() && y.numel() > 0) run(y.device(), &Kernels::add_bias, bias.tensor(), y);
}

Tensor bias_gradient(const Tensor& dy, std::int64_t channels) {
  Tensor db = Tensor::zeros({channels}, dy.dtype(), dy.device());
  if (dy.numel() > 0) run(dy.device(), &Kernels::bias_gradient, dy, db);
  return db;
}

}  // namespace fq::detail
