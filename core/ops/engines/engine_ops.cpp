#include "fakequant/core/ops/engines/engine_ops.h"

#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/core/ops/detail/elementwise.h"
#include "fakequant/core/ops/detail/engine_rows.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/tape.h"

namespace fq {
namespace {

constexpr const char* kLinear = "linear";
constexpr std::int64_t kXnnpackBlock = 32;

/// Returns the number of columns that share a scale if each row has its own scales, else 0.
std::int64_t block_columns(const Grid& grid, const Shape& weight) {
  const Shape scales = grid.granularity.scale_shape(weight);
  const bool whole = scales.size() == 2 && scales[1] > 0 && weight[1] % scales[1] == 0;
  return whole && scales[0] == weight[0] ? weight[1] / scales[1] : 0;
}

// Returns the reason why the engine does not support the weight, or an empty string. The comment on RowEngine
// has the rules.
std::string refusal(RowEngine engine, const Grid& grid, const Shape& weight) {
  if (!grid.format.is_integer() || grid.format.integer().is_unsigned || grid.format.bits() > 8)
    return fmt::format("{} weights", to_string(grid.format));
  const int bits = grid.format.bits();
  const bool by_channel = grid.granularity.is_per_tensor() || grid.granularity.single_axis(2) == 0;
  if (engine == RowEngine::ggml) {
    if (bits != 4 && bits != 8) return fmt::format("weights of {} bits", bits);
    if (weight[1] % detail::ggml_block != 0)
      return fmt::format("rows of {} (32 must divide them)", weight[1]);
    return block_columns(grid, weight) == detail::ggml_block ? "" : "blocks of other than 32 along the input";
  }
  if (engine == RowEngine::xnnpack && bits <= 4) {
    if (weight[1] % kXnnpackBlock != 0) return fmt::format("rows of {} (32 must divide them)", weight[1]);
    const std::int64_t block = block_columns(grid, weight);
    return block > 0 && block % kXnnpackBlock == 0 ? "" : "blocks that 32 does not divide";
  }
  // XNNPACK's qc8w kernels read one scale per channel.
  if (engine == RowEngine::xnnpack && grid.granularity.is_per_tensor()) return "one scale for all channels";
  if (!by_channel) return fmt::format("blocks of {} bits", bits);
  // Largest sum of products of an 8-bit code of x (with offset, up to 255) and of w (up to 128).
  const std::int64_t most = std::numeric_limits<std::int32_t>::max() / (255 * 128);
  return weight[1] <= most ? "" : fmt::format("sums of {} products, which exceed int32", weight[1]);
}

detail::EngineRows engine_rows(RowEngine engine, const Tensor& x, std::int64_t samples,
                               const detail::EngineWeight& w, const Tensor& bias) {
  switch (engine) {
    case RowEngine::ggml:
      return detail::ggml_rows(x, w, bias);
    case RowEngine::xnnpack:
      return detail::xnnpack_rows(x, w, bias);
    case RowEngine::ort_dynamic:
      return detail::ort_rows(x, 1, w, bias);
    case RowEngine::ort_dynamic_samples:
      break;
  }
  return detail::ort_rows(x, samples, w, bias);
}

std::shared_ptr<const detail::EngineWeight> prepared_weight(const QuantizedTensor& codes, const Variable& w,
                                                            RowEngine engine,
                                                            detail::KeptEngineWeight& kept) {
  // In training the codes change in every step, so a cached copy would be used once.
  if (!grad_enabled() || !w.requires_grad()) return kept.of(codes, engine);
  kept.forget();
  return std::make_shared<const detail::EngineWeight>(detail::engine_weight(codes, engine));
}

}  // namespace

std::string_view name(RowEngine engine) noexcept {
  switch (engine) {
    case RowEngine::ggml:
      return "ggml";
    case RowEngine::xnnpack:
      return "xnnpack";
    case RowEngine::ort_dynamic:
      return "ort_dynamic";
    case RowEngine::ort_dynamic_samples:
      break;
  }
  return "ort_dynamic_samples";
}

bool multiplies(RowEngine engine, const Grid& grid, const Shape& weight, std::string* why) {
  const std::string reason = refusal(engine, grid, weight);
  if (why != nullptr) *why = reason;
  return reason.empty();
}

Variable ops::engine_linear(const Variable& x, const Variable& w, const Variable& bias, RowEngine engine) {
  detail::KeptEngineWeight none;
  return detail::engine_linear(x, w, bias, engine, none);
}

Variable detail::engine_linear(const Variable& x, const Variable& w, const Variable& bias, RowEngine engine,
                               KeptEngineWeight& kept) {
  const ProfileScope profile("product", "forward");
  FQ_CHECK(x.rank() >= 1 && w.rank() == 2 && x.dim(-1) == w.dim(1), kLinear,
           "the input is {}, the weight {}: use [.., in] and [out, in]", to_string(x.shape()),
           to_string(w.shape()));
  const QuantizedTensor* codes = w.quantized();
  FQ_CHECK(codes != nullptr, kLinear, "the weight is floats: {} multiplies codes, quantize it", name(engine));
  const std::string reason = refusal(engine, codes->grid, w.shape());
  FQ_CHECK(reason.empty() || w.device().is_meta(), kLinear, "{} does not multiply {}", name(engine), reason);
  detail::check_bias(bias, w.dim(0), x, kLinear);
  const Variable input = x.as_float();
  const Tensor values = input.tensor().to(Layout::row_major);
  FQ_CHECK(values.dtype() == DType::f32 && values.device() == w.device(), kLinear,
           "the input is {}, the weight {}: use f32 on one device", values.describe(), to_string(w.device()));
  Shape shape = values.shape();
  const std::int64_t columns = shape.back(), channels = w.dim(0), rows = values.numel() / columns;
  shape.back() = channels;
  // Fallback for `meta` and empty tensors: no kernel runs, and backward reads x itself.
  const Tensor matrix = values.reshape({rows, columns});
  detail::EngineRows made{Tensor::empty({rows, channels}, DType::f32, values.device()),
                          [matrix] { return matrix; }};
  if (!values.device().is_meta() && made.y.numel() > 0)
    made = engine_rows(engine, matrix, values.rank() > 1 ? values.dim(0) : 1,
                       *prepared_weight(*codes, w, engine, kept), bias.defined() ? bias.tensor() : Tensor());
  const bool for_x = x.requires_grad(), for_w = w.requires_grad(), for_bias = bias.requires_grad();
  // Straight-through: dX = dY * W and dW = dY^T * X with the rounded W and X. ggml's x has codes in blocks,
  // which FloatGradients keeps; the other engines recompute the values from codes and grids per row.
  auto backward = [=, floats = detail::FloatGradients(made.codes ? Variable(*made.codes) : w, w),
                   x_values = made.x, x_shape = values.shape()](const Tensor& gradient) {
    detail::PendingGradient whole(gradient.to(Layout::row_major).reshape({rows, channels}));
    std::vector<Tensor> out(3);
    const Tensor dy = floats.dy(whole, for_bias ? &out[2] : nullptr);
    if (for_x) {
      out[0] = Tensor::empty({rows, columns}, detail::product_dtype(dy), dy.device());
      detail::multiply({dy, rows, channels}, {floats.w(), channels, columns}, out[0], 1,
                       detail::Sharing::by_threads);
      out[0] = out[0].reshape(x_shape);
    }
    if (for_w) {
      const Tensor factor = x_values ? floats.rounded(x_values()) : floats.x();
      out[1] = Tensor::empty({channels, columns}, detail::product_dtype(dy), dy.device());
      detail::multiply({dy, channels, rows, true}, {factor, rows, columns}, out[1], 1,
                       detail::Sharing::by_threads);
    }
    if (for_bias && !out[2].defined()) out[2] = detail::bias_gradient(whole.values, channels);
    return out;
  };
  return made_of_codes(record(kLinear, made.y.reshape(shape), {input, w, bias}, std::move(backward),
                              {{"engine", std::string(name(engine))}}));
}

}  // namespace fq

namespace fq::ops {

Variable ggml_gelu(const Variable& x, bool approximate_tanh) {
  auto attributes = detail::traced([] {
    return Attributes{{"approximate", std::string("tanh")}, {"engine", std::string("ggml")}};
  });
  return detail::apply_function("gelu", x, detail::GgmlGelu{approximate_tanh}, std::move(attributes));
}

}  // namespace fq::ops
