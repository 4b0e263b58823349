#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/device_traits.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/engine_operands.h"
#include "fakequant/reference/onnx.h"

namespace fq::onnx {
namespace {

constexpr const char* kGqa = "onnx.gqa_int8_kv";

// q is [B, S, H * D], k and v are [B, S, KV * D]. B is the batch, S the length, D the width of a head, H and
// KV are the numbers of heads.
struct Sizes {
  std::int64_t batch, length, width, heads, kv_heads;

  // Offset of position s of head h in [B, S, of * D], and in the cache [B, KV, S, D].
  [[nodiscard]] std::int64_t at(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t of) const {
    return ((b * length + s) * of + h) * width;
  }
  [[nodiscard]] std::int64_t cached(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return ((b * kv_heads + h) * length + s) * width;
  }
};

Sizes attention_sizes(const Tensor& q, const AttentionHeads& heads) {
  FQ_CHECK(q.defined() && q.dtype() == DType::f32 && q.rank() == 3, kGqa, "q must be f32 of 3 axes");
  FQ_CHECK(heads.heads > 0 && heads.kv_heads > 0 && heads.heads % heads.kv_heads == 0, kGqa,
           "{} heads and {} of keys: the first must be a multiple of the second", heads.heads,
           heads.kv_heads);
  FQ_CHECK(q.dim(2) > 0 && q.dim(2) % heads.heads == 0, kGqa, "q is {}: {} heads do not divide it",
           to_string(q.shape()), heads.heads);
  return {q.dim(0), q.dim(1), q.dim(2) / heads.heads, heads.heads, heads.kv_heads};
}

// The scale is per tensor, [1] or rank 0, or per channel, [1, KV, 1, D].
void check_cached(const Tensor& x, const Tensor& scale, const Sizes& z, std::string_view what) {
  detail::check_shape(x, DType::f32, {z.batch, z.length, z.kv_heads * z.width}, what, kGqa);
  const bool single = scale.defined() && scale.numel() == 1 && scale.rank() < 2;
  detail::check_shape(scale, DType::f32, single ? scale.shape() : Shape{1, z.kv_heads, 1, z.width},
                      "the scale", kGqa);
}

// Returns the codes [B, KV, S, D]; `values` gets code * scale in the same order.
Tensor cache(const Tensor& x, const Tensor& scale, const Sizes& z, std::vector<double>& values) {
  Tensor out = Tensor::empty({z.batch, z.kv_heads, z.length, z.width}, DType::i8);
  values.resize(static_cast<std::size_t>(out.numel()));
  const auto *in = x.data<float>(), *scales = scale.data<float>();
  auto* codes = out.mutable_data<std::int8_t>();
  for (std::int64_t b = 0; b < z.batch; ++b)
    for (std::int64_t h = 0; h < z.kv_heads; ++h)
      for (std::int64_t s = 0; s < z.length; ++s)
        for (std::int64_t d = 0; d < z.width; ++d) {
          const float step = scales[scale.numel() == 1 ? 0 : h * z.width + d];
          // ORT multiplies by fl(1 / s). A division differs in near-ties (ENGINES §4).
          const float position = scalar::rint_(in[z.at(b, s, h, z.kv_heads) + d] * (1.0f / step));
          const std::int64_t to = z.cached(b, h, s) + d;
          codes[to] = static_cast<std::int8_t>(scalar::clamp_(position, -128.0f, 127.0f));
          values[static_cast<std::size_t>(to)] = double(codes[to]) * double(step);
        }
  return out;
}

// Computes one row of the result, causal: softmax of the scores of positions 0 .. s times their values. In
// double, because ORT's float attention has a tolerance. O(S * D) per row.
void attend(const float* q, const double* keys, const double* values, std::int64_t s, std::int64_t width,
            float* y) {
  std::vector<double> weights(static_cast<std::size_t>(s + 1)), sums(static_cast<std::size_t>(width), 0.0);
  double most = -std::numeric_limits<double>::infinity(), total = 0;
  for (std::int64_t t = 0; t <= s; ++t) {
    double score = 0;
    for (std::int64_t d = 0; d < width; ++d) score += double(q[d]) * keys[t * width + d];
    weights[static_cast<std::size_t>(t)] = score / std::sqrt(double(width));
    most = std::max(most, weights[static_cast<std::size_t>(t)]);
  }
  // The largest score is subtracted, so that exp cannot overflow.
  for (double& w : weights) total += w = std::exp(w - most);
  for (std::int64_t t = 0; t <= s; ++t)
    for (std::int64_t d = 0; d < width; ++d)
      sums[static_cast<std::size_t>(d)] += weights[static_cast<std::size_t>(t)] * values[t * width + d];
  for (std::int64_t d = 0; d < width; ++d)
    y[d] = static_cast<float>(sums[static_cast<std::size_t>(d)] / total);
}

QuantizedAttention host_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& k_scale,
                                  const Tensor& v_scale, const Sizes& z) {
  std::vector<double> keys, values;
  QuantizedAttention out{cache(k, k_scale, z, keys), cache(v, v_scale, z, values), Tensor::empty(q.shape())};
  auto* y = out.y.mutable_data<float>();
  for (std::int64_t b = 0; b < z.batch; ++b)
    for (std::int64_t h = 0; h < z.heads; ++h)
      for (std::int64_t s = 0; s < z.length; ++s) {
        // Grouped queries: heads / kv_heads consecutive query heads share a head of keys and values.
        const std::int64_t from = z.cached(b, h / (z.heads / z.kv_heads), 0), at = z.at(b, s, h, z.heads);
        attend(q.data<float>() + at, keys.data() + from, values.data() + from, s, z.width, y + at);
      }
  return out;
}

}  // namespace

QuantizedAttention gqa_int8_kv(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& k_scale,
                               const Tensor& v_scale, AttentionHeads heads) {
  const Sizes z = attention_sizes(q, heads);
  check_cached(k, k_scale, z, "k");
  check_cached(v, v_scale, z, "v");
  const Device device = q.device(), cpu = Device::cpu();
  if (device.is_meta()) {
    const Tensor codes = Tensor::empty({z.batch, z.kv_heads, z.length, z.width}, DType::i8, device);
    return {codes, codes, Tensor::empty(q.shape(), DType::f32, device)};
  }
  const auto out = host_attention(q.to(cpu), k.to(cpu), v.to(cpu), k_scale.to(cpu), v_scale.to(cpu), z);
  return {out.k_codes.to(device), out.v_codes.to(device), out.y.to(device)};
}

}  // namespace fq::onnx
