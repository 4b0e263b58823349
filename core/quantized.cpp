#include "fakequant/core/quantized.h"

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/quantizer_checks.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/profile.h"

namespace fq {

namespace {

using detail::Kernels;
using detail::least_amax;
using detail::ScaleRule;

void check_given(const Tensor& amax, const std::string& name) {
  FQ_CHECK(amax.defined(), "quantizer", "amax of {} is undefined: use one value, or one per block",
           detail::quantizer_label(name));
}

void check_defined(const QuantizedTensor& x, const char* function) {
  FQ_CHECK(x.codes.defined() && x.grid.scale.defined(), function, "the {} undefined",
           x.codes.defined() ? "scales are" : "codes are");
}

}  // namespace

Grid Grid::from_amax(Format format, Granularity granularity, Tensor amax, std::string name, bool pow2,
                     int zero_point) {
  check_given(amax, name);
  Grid grid{.format = format,
            .granularity = std::move(granularity),
            .amax = amax.to(DType::f32).clone(),
            .scale = Tensor::empty(amax.shape(), DType::f32, amax.device(), amax.layout()),
            .zero_point = zero_point,
            .name = std::move(name),
            .raised = pow2};
  // An amax of at most 2^-24 counts as 0, as in ModelOpt's fake_tensor_quant and scaled_e4m3: integer codes
  // become 0, and E4M3 uses amax 1.
  const ScaleRule rule{.kind = pow2 ? ScaleRule::Kind::raised : ScaleRule::Kind::exact,
                       .bound = format.bound(),
                       .least = format.is_integer() ? least_amax : 1.0f};
  detail::run(grid.amax.device(), &Kernels::make_scales, grid, rule, detail::ranges_message(grid));
  return grid;
}

Grid Grid::block_scaled(Format format, Granularity granularity, Tensor amax, NumBits scale_bits, float global,
                        std::string name) {
  check_given(amax, name);
  const bool e4m3 = scale_bits == NumBits(4, 3);
  FQ_CHECK(e4m3 || scale_bits == NumBits(8, 0), "quantizer", "scale_bits of {} are {}: use (4, 3) or (8, 0)",
           detail::quantizer_label(name), to_string(scale_bits));
  Grid grid{.format = format,
            .granularity = std::move(granularity),
            .amax = amax.to(DType::f32).clone(),
            .scale = Tensor::empty(amax.shape(), DType::f32, amax.device(), amax.layout()),
            .name = std::move(name),
            .scale_bits = e4m3 ? 4 : 1};
  detail::check_amax(global, grid.name);
  // The largest block scale is then 448 units, the maximum of E4M3.
  const float unit = global <= least_amax ? 1.0f : global / (448.0f * format.bound());
  if (e4m3) grid.unit = unit;
  const ScaleRule rule{.kind = e4m3 ? ScaleRule::Kind::e4m3 : ScaleRule::Kind::e8m0,
                       .bound = format.bound(),
                       .least = least_amax,
                       .unit = unit};
  detail::run(grid.amax.device(), &Kernels::make_scales, grid, rule, detail::ranges_message(grid));
  return grid;
}

Grid Grid::to(Device device) const {
  Grid out = *this;
  out.amax = amax.to(device);
  out.scale = scale.to(device);
  return out;
}

Tensor code_values(const QuantizedTensor& x) {
  check_defined(x, "code_values");
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.codes.device(), x.layout());
  // Only checks that the grid fits the shape.
  static_cast<void>(detail::needs_block_kernels(x.grid, x.shape(), "code_values"));
  detail::run(out.device(), &Kernels::decode, x, out);
  return out;
}

Tensor dequantize(const QuantizedTensor& x) {
  const ProfileScope profile("epilogue");
  check_defined(x, "dequantize");
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.codes.device(), x.layout());
  // Both functions throw if the ranges do not fit the shape. The kernel relies on it.
  if (!detail::needs_block_kernels(x.grid, x.shape(), "dequantize"))
    static_cast<void>(detail::channel_axis(x.grid, x.shape(), "dequantize"));
  detail::check_device(x.grid, x.codes, "dequantize");
  detail::run(out.device(), &Kernels::dequantize, x, out);
  return out;
}

namespace {

/// A tensor in the form that its kernel requires, and its output codes, which `allocate` allocates.
struct Quantizing {
  Tensor x;
  QuantizedTensor out;
  bool with_mask, with_factors = false;

  Quantizing(const Tensor& input, const Grid& grid, bool mask) : with_mask(mask) {
    FQ_CHECK(input.defined(), "quantize", "the input of {} is undefined", detail::quantizer_label(grid.name));
    FQ_CHECK(grid.scale.defined() && (grid.amax.defined() || !with_mask), "quantize",
             "the grid of {} is undefined", detail::quantizer_label(grid.name));
    const bool blocks = detail::needs_block_kernels(grid, input.shape(), "quantize");
    if (!blocks) static_cast<void>(detail::channel_axis(grid, input.shape(), "quantize"));
    detail::check_device(grid, input, "quantize");
    // f64 and 16-bit inputs are rounded or widened to f32 first: all kernels divide in f32.
    x = input.to(DType::f32);
    out.grid = grid;
  }
  [[nodiscard]] DType code_dtype() const { return out.grid.format.code_dtype(); }
  /// Returns whether the outputs can follow the outputs of `before` in memory.
  [[nodiscard]] bool follows(const Quantizing& before) const {
    constexpr std::int64_t aligned = 128;  // elements: 16 bytes of a mask, for vector loads
    return x.rank() == 2 && before.x.rank() == 2 && x.dim(1) == before.x.dim(1) &&
           before.x.numel() % aligned == 0 && x.device() == before.x.device() &&
           code_dtype() == before.code_dtype() && with_mask == before.with_mask &&
           with_factors == before.with_factors;
  }
  /// Requests factors, where one pass makes them together with the codes.
  void add_factors() {
    const auto& by = out.grid.granularity;
    const bool one_axis = by.is_per_tensor() || by.single_axis(x.rank()) >= 0;
    with_factors = x.device().is_cuda() && one_axis && bit_width(code_dtype()) == 8;
  }
  [[nodiscard]] detail::QuantizeCall call() { return {x, out, detail::nan_message(out.grid)}; }
};

/// Allocates one output of tensors whose rows lie side by side.
void allocate_rows(std::span<Quantizing> group, DType dtype, Tensor QuantizedTensor::*output) {
  const Tensor& x = group[0].x;
  if (group.size() == 1) {
    group[0].out.*output = Tensor::empty(x.shape(), dtype, x.device(), x.layout());
    return;
  }
  std::int64_t rows = 0;
  for (const auto& one : group) rows += one.x.dim(0);
  const Tensor all = Tensor::empty({rows, x.dim(1)}, dtype, x.device());
  std::int64_t first = 0;
  for (auto& one : group) {
    one.out.*output = all.slice(first, first + one.x.dim(0));
    first += one.x.dim(0);
  }
}

/// Allocates codes, masks and factors. Neighbouring matrices with rows of one size lie side by side, so that
/// layers of one input can multiply them as one matrix (adjacent_rows).
void allocate(std::span<Quantizing> all) {
  for (std::size_t begin = 0, end = 1; begin < all.size(); begin = end++) {
    while (end < all.size() && all[end].follows(all[end - 1])) ++end;
    const auto group = all.subspan(begin, end - begin);
    allocate_rows(group, group[0].code_dtype(), &QuantizedTensor::codes);
    if (group[0].with_mask) allocate_rows(group, DType::u1, &QuantizedTensor::mask);
    if (group[0].with_factors) allocate_rows(group, DType::bf16, &QuantizedTensor::factors);
  }
}

}  // namespace

QuantizedTensor quantize(const Tensor& x, const Grid& grid, bool with_mask) {
  const ProfileScope profile("quantize");
  Quantizing one(x, grid, with_mask);
  allocate(std::span(&one, 1));
  const detail::QuantizeCall call = one.call();
  detail::run(x.device(), &Kernels::quantize, std::span(&call, 1));
  return one.out;
}

std::vector<QuantizedTensor> quantize(std::span<const QuantizeRequest> requests) {
  const ProfileScope profile("quantize");
  std::vector<Quantizing> all;
  for (const auto& request : requests) {
    Quantizing& one = all.emplace_back(request.x, request.grid, request.with_mask);
    if (request.with_factors) one.add_factors();
    FQ_CHECK(one.x.device() == all.front().x.device(), "quantize",
             "{} is on {}, another on {}: use one device", detail::quantizer_label(request.grid.name),
             to_string(one.x.device()), to_string(all.front().x.device()));
  }
  allocate(all);
  // The calls point into `all`, which does not grow any more.
  std::vector<detail::QuantizeCall> calls;
  for (auto& one : all) calls.push_back(one.call());
  if (!calls.empty()) detail::run(all.front().x.device(), &Kernels::quantize, calls);
  std::vector<QuantizedTensor> out;
  for (auto& one : all) out.push_back(std::move(one.out));
  return out;
}

bool same_grid(const Grid& a, const Grid& b) {
  const auto equal = [](const Tensor& x, const Tensor& y) {
    // Grids usually share their tensors. Then no value is read, which on a GPU would wait for its work.
    const bool same = x.storage().shares(y.storage()) && x.raw() == y.raw() && x.shape() == y.shape();
    return same || bitwise_equal(x, y);
  };
  return a.format == b.format && a.granularity == b.granularity && equal(a.scale, b.scale) &&
         equal(a.amax, b.amax);
}

Tensor apply_mask(const Tensor& dy, const Tensor& mask) {
  if (!mask.defined()) return dy;
  FQ_CHECK(dy.defined(), "apply_mask", "the gradient is undefined");
  FQ_CHECK(dy.shape() == mask.shape(), "apply_mask", "the gradient is {}, the mask {}", to_string(dy.shape()),
           to_string(mask.shape()));
  FQ_CHECK(is_floating(dy.dtype()), "apply_mask", "the gradient is {}: use f32, f64, f16 or bf16",
           name(dy.dtype()));
  const Tensor same = dy.to(mask.layout());
  Tensor out = Tensor::empty(dy.shape(), dy.dtype(), dy.device(), mask.layout());
  detail::run(out.device(), &Kernels::apply_mask, same, mask, out);
  return out;
}

}  // namespace fq
