#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/recurrent_formulas.h"
#include "fakequant/reference/detail/engine_operands.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/onnx.h"

namespace fq::onnx {
namespace {

using detail::DynamicGrid;

// Codes of a row, and one scale for each block of it.
struct BlockCodes {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
};

// Quantizes a row in blocks as MatMulNBits does at accuracy level 4 (DEPLOY §3): s = fl(amax / 127).
BlockCodes block_codes(const float* x, std::int64_t count, std::int64_t length) {
  BlockCodes out{std::vector<std::int8_t>(static_cast<std::size_t>(count)), {}};
  for (std::int64_t first = 0; first < count; first += length) {
    const std::int64_t end = std::min(count, first + length);
    float most = 0;
    for (std::int64_t i = first; i < end; ++i) most = std::max(most, std::fabs(x[i]));
    const float scale = most / 127.0f, factor = scale != 0 ? 1.0f / scale : 0.0f;
    out.scales.push_back(scale);
    for (std::int64_t i = first; i < end; ++i)
      out.codes[static_cast<std::size_t>(i)] =
          static_cast<std::int8_t>(scalar::clamp_(scalar::rint_(x[i] * factor), -127.0f, 127.0f));
  }
  return out;
}

namespace host {

DynamicCodes quantize(const Tensor& x) {
  constexpr const char* where = "onnx.dynamic_quantize_linear";
  FQ_CHECK(x.defined() && x.dtype() == DType::f32, where, "the input must be f32");
  DynamicCodes out{Tensor::empty(x.shape(), DType::u8, x.device()), Tensor::empty({}, DType::f32, x.device()),
                   Tensor::empty({}, DType::u8, x.device())};
  if (x.device().is_meta()) return out;
  const Tensor rows = x.to(Layout::row_major);
  const auto* in = rows.data<float>();
  const auto range = detail::zero_range(in, x.numel());
  const auto grid = DynamicGrid::of(range.low, range.high);
  auto* codes = out.codes.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < x.numel(); ++i) codes[i] = grid.code(in[i]);
  *out.scale.mutable_data<float>() = grid.scale;
  *out.zero_point.mutable_data<std::uint8_t>() = static_cast<std::uint8_t>(grid.zero);
  return out;
}

Tensor matmul(const Tensor& x, const Tensor& codes, const Tensor& scale, const Tensor& bias) {
  constexpr const char* where = "onnx.dynamic_quantize_matmul";
  detail::check_matrix(x, DType::f32, "the input", where);
  detail::check_matrix(codes, DType::i8, "the codes", where);
  const std::int64_t rows = x.dim(0), columns = x.dim(1), outputs = codes.dim(1);
  detail::check_columns(columns, 1, where);
  detail::check_same_columns(columns, codes.dim(0), where);
  // uint8 activation codes and int8 weight codes: |terms| <= 255 * 128.
  detail::check_terms(columns, 255, 128, where);
  const bool single = scale.defined() && scale.numel() == 1 && scale.rank() < 2;
  detail::check_shape(scale, DType::f32, single ? scale.shape() : Shape{outputs}, "the scale", where);
  if (bias.defined()) detail::check_shape(bias, DType::f32, {outputs}, "the bias", where);
  Tensor y = Tensor::empty({rows, outputs}, DType::f32, x.device());
  if (x.device().is_meta()) return y;
  const DynamicCodes q = quantize(x);
  const DynamicGrid grid{q.scale.data<float>()[0], static_cast<float>(q.zero_point.data<std::uint8_t>()[0])};
  const auto* w = codes.data<std::int8_t>();
  // A product with ones gives the sum of the weight codes, for sum (q - z) * w = sum q * w - z * sum w.
  // codes: [K, N], so a column has stride N.
  const std::vector<std::uint8_t> ones(static_cast<std::size_t>(columns), 1);
  auto* out = y.mutable_data<float>();
#pragma omp parallel for schedule(static) if (rows * outputs * columns > detail::engine_parallel)
  for (std::int64_t n = 0; n < outputs; ++n) {
    const std::int32_t weights = detail::dot(ones.data(), w + n, columns, outputs);
    const float w_scale = scale.data<float>()[single ? 0 : n];
    for (std::int64_t m = 0; m < rows; ++m) {
      const auto* codes_of_row = q.codes.data<std::uint8_t>() + m * columns;
      const float v = grid.sum(detail::dot(codes_of_row, w + n, columns, outputs), weights, w_scale);
      // ORT adds the bias after scaling, without an fma (ENGINES §4).
      out[m * outputs + n] = bias.defined() ? v + bias.data<float>()[n] : v;
    }
  }
  return y;
}

Tensor matmulnbits(const Tensor& x, const Tensor& codes, const Tensor& scale, std::int64_t block_size) {
  constexpr const char* where = "onnx.matmulnbits_level4";
  detail::check_matrix(x, DType::f32, "the input", where);
  detail::check_matrix(codes, DType::i8, "the codes", where);
  const std::int64_t rows = x.dim(0), columns = x.dim(1), outputs = codes.dim(0);
  FQ_CHECK(block_size >= 16 && std::has_single_bit(static_cast<std::uint64_t>(block_size)), where,
           "blocks of {}: use a power of two, 16 or more", block_size);
  detail::check_columns(columns, 1, where);
  detail::check_same_columns(columns, codes.dim(1), where);
  detail::check_terms(std::min(columns, block_size), 127, 8, where);
  detail::check_codes(codes, -8, 7, where);
  const std::int64_t blocks = (columns - 1) / block_size + 1;
  detail::check_shape(scale, DType::f32, {outputs, blocks}, "the scale", where);
  Tensor y = Tensor::empty({rows, outputs}, DType::f32, x.device());
  if (x.device().is_meta()) return y;
  for (std::int64_t m = 0; m < rows; ++m) {
    const BlockCodes a = block_codes(x.data<float>() + m * columns, columns, block_size);
    for (std::int64_t n = 0; n < outputs; ++n) {
      // ORT's order of this float sum is not known (ENGINES §4), so the reference sums in double and tests
      // have a tolerance.
      double sum = 0;
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t first = b * block_size, count = std::min(block_size, columns - first);
        const std::int32_t products =
            detail::dot(a.codes.data() + first, codes.data<std::int8_t>() + n * columns + first, count);
        sum += double(a.scales[static_cast<std::size_t>(b)]) * double(scale.data<float>()[n * blocks + b]) *
               products;
      }
      y.mutable_data<float>()[m * outputs + n] = static_cast<float>(sum);
    }
  }
  return y;
}

}  // namespace host
}  // namespace

// Not through_host, because the result has three tensors.
DynamicCodes dynamic_quantize_linear(const Tensor& x) {
  const Device device = x.device();
  if (!detail::device_traits(device).own_memory) return host::quantize(x);
  const DynamicCodes q = host::quantize(x.to(Device::cpu()));
  return {q.codes.to(device), q.scale.to(device), q.zero_point.to(device)};
}

Tensor dynamic_quantize_matmul(const Tensor& x, const Tensor& codes, const Tensor& scale,
                               const Tensor& bias) {
  return detail::through_host(host::matmul, x, codes, scale, bias);
}

Tensor matmulnbits_level4(const Tensor& x, const Tensor& codes, const Tensor& scale,
                          std::int64_t block_size) {
  return detail::through_host(host::matmulnbits, x, codes, scale, block_size);
}

}  // namespace fq::onnx
