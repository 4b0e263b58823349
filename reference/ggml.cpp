#include "fakequant/reference/ggml.h"

#include <cstring>

#include "fakequant/core/backend/cpu/engines/engine_products.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/reference/detail/engine_operands.h"
#include "fakequant/reference/detail/through_host.h"

namespace fq::ggml {
namespace {

using detail::ggml_block;

// Returns codes i8 [N, K] and scales f16 [N, K / 32]. The rounding of ggml's file and run-time quantizers
// differs (ENGINES §2).
Blocks quantized(const Tensor& x, const char* function, detail::GgmlRounding rounding) {
  detail::check_matrix(x, DType::f32, "the input", function);
  detail::check_columns(x.dim(1), ggml_block, function);
  const Device device = x.device();
  Blocks out{Tensor::empty(x.shape(), DType::i8, device),
             Tensor::empty({x.dim(0), x.dim(1) / ggml_block}, DType::f16, device)};
  detail::run(device, &detail::Kernels::ggml_blocks, x, Tensor(), rounding, std::string(), out.codes,
              out.scale);
  return out;
}

void check_blocks(const Tensor& codes, const Tensor& scale, int lower, int upper, const char* function) {
  detail::check_matrix(codes, DType::i8, "the codes", function);
  detail::check_columns(codes.dim(1), ggml_block, function);
  detail::check_shape(scale, DType::f16, {codes.dim(0), codes.dim(1) / ggml_block}, "the scale", function);
  detail::check_codes(codes, lower, upper, function);
}

namespace host {

Tensor matmul(const Tensor& x, const Tensor& codes, const Tensor& scale, int bits, Buffer buffer) {
  const char* function = bits == 4 ? "ggml.matmul_q4_0_q8_0" : "ggml.matmul_q8_0";
  check_blocks(codes, scale, bits == 4 ? -8 : -128, bits == 4 ? 7 : 127, function);
  detail::check_matrix(x, DType::f32, "the input", function);
  detail::check_same_columns(x.dim(1), codes.dim(1), function);
  // ggml repacks 8 rows together; llama.cpp uses plain buffers for other weights.
  FQ_CHECK(buffer == Buffer::plain || codes.dim(0) % 8 == 0, function,
           "the weight has {} rows: use a multiple of 8 for the repack buffer, or the plain buffer",
           codes.dim(0));
  Tensor y = Tensor::empty({x.dim(0), codes.dim(0)}, DType::f32, x.device());
  if (x.device().is_meta()) return y;
  // ggml quantizes the activations of both weight formats to Q8_0 at run time.
  const Blocks rows = quantize_q8_0_activation(x);
  if (y.numel() == 0) return y;
  // The two buffers have different orders of float sums, so their outputs differ in the last bits.
  const auto weight = cpu::ggml_weight(codes, scale.to(DType::f32), buffer == Buffer::repack);
  cpu::ggml_product(rows.codes, rows.scale.to(DType::f32), weight, Tensor(), y);
  return y;
}

}  // namespace host
}  // namespace

Blocks quantize_q4_0(const Tensor& x) {
  return quantized(x, "ggml.quantize_q4_0", detail::GgmlRounding::q4_0);
}
Blocks quantize_q8_0(const Tensor& x) {
  return quantized(x, "ggml.quantize_q8_0", detail::GgmlRounding::q8_0);
}
Blocks quantize_q8_0_activation(const Tensor& x) {
  return quantized(x, "ggml.quantize_q8_0_activation", detail::GgmlRounding::activation);
}

Buffer buffer(std::string_view name) {
  FQ_CHECK(name == "plain" || name == "repack", "ggml.buffer", "no buffer '{}': use plain or repack", name);
  return name == "plain" ? Buffer::plain : Buffer::repack;
}

Tensor matmul_q4_0_q8_0(const Tensor& x, const Blocks& weight, Buffer buffer) {
  return detail::through_host(host::matmul, x, weight.codes, weight.scale, 4, buffer);
}
Tensor matmul_q8_0(const Tensor& x, const Blocks& weight) {
  return detail::through_host(host::matmul, x, weight.codes, weight.scale, 8, Buffer::plain);
}

namespace {

using detail::ggml_block;

constexpr std::int64_t kHalf = ggml_block / 2;

// A block of a GGUF file: f16 scale, then 32 codes. 18 bytes for Q4_0, 34 for Q8_0.
std::int64_t block_bytes(int bits) { return 2 + ggml_block * bits / 8; }

// Little-endian, as GGUF files are.
void write_scale(float16 scale, std::uint8_t* to) {
  to[0] = static_cast<std::uint8_t>(scale.bits & 0xffu);
  to[1] = static_cast<std::uint8_t>(scale.bits >> 8);
}

// Q4_0: byte j has code j in its low nibble and code j + 16 in its high one, both stored + 8.
void write_codes(const std::int8_t* codes, int bits, std::uint8_t* to) {
  if (bits == 8) {
    std::memcpy(to, codes, ggml_block);
    return;
  }
  for (std::int64_t j = 0; j < kHalf; ++j)
    to[j] = static_cast<std::uint8_t>((codes[j] + 8) | ((codes[j + kHalf] + 8) << 4));
}

void read_codes(const std::uint8_t* from, int bits, std::int8_t* codes) {
  if (bits == 8) {
    std::memcpy(codes, from, ggml_block);
    return;
  }
  for (std::int64_t j = 0; j < kHalf; ++j) {
    codes[j] = static_cast<std::int8_t>((from[j] & 0xf) - 8);
    codes[j + kHalf] = static_cast<std::int8_t>((from[j] >> 4) - 8);
  }
}

namespace host {

Tensor pack(const Tensor& codes, const Tensor& scale, int bits) {
  const char* function = bits == 4 ? "ggml.pack_q4_0" : "ggml.pack_q8_0";
  detail::check_matrix(codes, DType::i8, "the codes", function);
  detail::check_columns(codes.dim(1), ggml_block, function);
  const std::int64_t blocks = codes.dim(1) / ggml_block, size = block_bytes(bits);
  detail::check_shape(scale, DType::f16, {codes.dim(0), blocks}, "the scale", function);
  if (bits == 4) detail::check_codes(codes, -8, 7, function);
  Tensor out = Tensor::empty({codes.dim(0), blocks * size}, DType::u8, codes.device());
  if (codes.device().is_meta()) return out;
  auto* to = out.mutable_data<std::uint8_t>();
  for (std::int64_t b = 0; b < scale.numel(); ++b) {
    write_scale(scale.data<float16>()[b], to + b * size);
    write_codes(codes.data<std::int8_t>() + b * ggml_block, bits, to + b * size + 2);
  }
  return out;
}

Blocks unpack(const Tensor& bytes, int bits) {
  const char* function = bits == 4 ? "ggml.unpack_q4_0" : "ggml.unpack_q8_0";
  detail::check_matrix(bytes, DType::u8, "the bytes", function);
  const std::int64_t size = block_bytes(bits), blocks = bytes.dim(1) / size;
  FQ_CHECK(blocks > 0 && bytes.dim(1) % size == 0, function,
           "rows have {} bytes: use whole blocks of {} bytes", bytes.dim(1), size);
  Blocks out{Tensor::empty({bytes.dim(0), blocks * ggml_block}, DType::i8, bytes.device()),
             Tensor::empty({bytes.dim(0), blocks}, DType::f16, bytes.device())};
  if (bytes.device().is_meta()) return out;
  const auto* from = bytes.data<std::uint8_t>();
  auto* codes = out.codes.mutable_data<std::int8_t>();
  auto* scales = out.scale.mutable_data<float16>();
  for (std::int64_t b = 0; b < out.scale.numel(); ++b) {
    // The bits are copied, so scales that are infinite or NaN survive.
    scales[b].bits = static_cast<std::uint16_t>(from[b * size] | (from[b * size + 1] << 8));
    read_codes(from + b * size + 2, bits, codes + b * ggml_block);
  }
  return out;
}

}  // namespace host
}  // namespace

Tensor pack_q4_0(const Blocks& blocks) {
  return detail::through_host(host::pack, blocks.codes, blocks.scale, 4);
}
Tensor pack_q8_0(const Blocks& blocks) {
  return detail::through_host(host::pack, blocks.codes, blocks.scale, 8);
}
Blocks unpack_q4_0(const Tensor& bytes) { return detail::through_host(host::unpack, bytes, 4); }
Blocks unpack_q8_0(const Tensor& bytes) { return detail::through_host(host::unpack, bytes, 8); }

}  // namespace fq::ggml
