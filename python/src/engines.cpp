#include "bindings.h"
#include "fakequant/reference/ggml.h"
#include "fakequant/reference/onnx.h"
#include "fakequant/reference/tensorrt.h"
#include "fakequant/reference/xnnpack.h"
#include "typed.h"

namespace fq::python {

template <>
struct Argument<ggml::Buffer> : Named<ggml::Buffer, ggml::buffer> {};

namespace {

using nb::arg, nb::none;
using Type = std::optional<DType>;

// Scale and zero point: rank 0 per tensor, rank 1 along `axis`, the rank of x for blocks.
void bind_onnx(nb::module_& m) {
  bind_function(
      m, "onnx.quantize_linear", onnx::quantize_linear,
      "Returns the codes saturate(rne(x / scale) + zero_point). `scale` has one value, one for each index of "
      "`axis`, or one for each block of `block_size` elements along it.",
      arg("x"), arg("scale"), arg("zero_point") = none(), arg("axis") = 1, arg("block_size") = 0,
      arg("saturate") = true, arg("output_dtype") = none());
  bind_function(m, "onnx.dequantize_linear", onnx::dequantize_linear,
                "Returns (codes - zero_point) * scale, with the scales of quantize_linear.", arg("codes"),
                arg("scale"), arg("zero_point") = none(), arg("axis") = 1, arg("block_size") = 0,
                arg("output_dtype") = none());
}

// Tripy has no zero point. Rank-2 scales are blocks over axis 0 (golden/README.md, onnx.h5).
void bind_tripy(nb::module_& module) {
  nb::module_ m = module.def_submodule("tripy", "Quantize and dequantize of NVIDIA Tripy.");
  bind_function(
      m, "tripy.quantize",
      [](const Constant& input, const Constant& scale, Type dtype, std::optional<int> dim) {
        return tripy::quantize(input, scale, dtype.value_or(DType::i8), dim);
      },
      "Returns the codes saturate(rne(input / scale)).", arg("input"), arg("scale"), arg("dtype"),
      arg("dim") = none());
  bind_function(
      m, "tripy.dequantize",
      [](const Constant& input, const Constant& scale, Type dtype, std::optional<int> dim) {
        return tripy::dequantize(input, scale, dtype.value_or(DType::f32), dim);
      },
      "Returns codes * scale.", arg("input"), arg("scale"), arg("dtype") = "float32", arg("dim") = none());
}

// TensorRT has the arithmetic of ONNX and requires zero points of 0.
void bind_tensorrt(nb::module_& module) {
  nb::module_ m = module.def_submodule(
      "tensorrt", "Quantize and Dequantize layers of TensorRT, and entries of calibration caches.");
  bind_function(
      m, "tensorrt.quantize",
      [](const Constant& input, const Constant& scale, Type to_type, int axis, const Constant& zero_point) {
        return tensorrt::quantize(input, scale, to_type.value_or(DType::i8), axis, zero_point);
      },
      "Returns the codes saturate(rne(input / scale)).", arg("input"), arg("scale"), arg("to_type") = "int8",
      arg("axis") = 1, arg("zero_point") = none());
  bind_function(
      m, "tensorrt.dequantize",
      [](const Constant& input, const Constant& scale, Type dtype, int axis, const Constant& zero_point) {
        return tensorrt::dequantize(input, scale, dtype.value_or(DType::f32), axis, zero_point);
      },
      "Returns codes * scale.", arg("input"), arg("scale"), arg("dtype") = "float32", arg("axis") = 1,
      arg("zero_point") = none());
  m.def("calibration_cache_entry", &tensorrt::calibration_cache_entry, arg("amax"),
        "Returns the cache entry of a signed 8-bit tensor with this range.");
  m.def(
      "calibration_cache_scale",
      [](const std::string& entry) { return tensorrt::calibration_cache_scale(entry); }, arg("entry"),
      "Returns the scale of a cache entry.");
}

void bind_blocks(nb::module_& m, const char* name, ggml::Blocks (*f)(const Tensor&), const char* about,
                 arg argument) {
  const auto pair = [f](const Tensor& x) {
    const ggml::Blocks out = f(x);
    return std::tuple(out.codes, out.scale);
  };
  bind_function(m, name, pair, about, argument);
}

// x: [rows, K] f32, K a multiple of 32. codes: [rows, K] i8. scale: [rows, K / 32] f16. A file block of 32
// codes has 2 bytes of scale, then 16 (Q4_0) or 32 (Q8_0) bytes of codes.
void bind_ggml(nb::module_& module) {
  nb::module_ m = module.def_submodule("ggml", "Blocks and products of ggml, with the same bits on x86-64.");
  bind_blocks(m, "quantize_q4_0", ggml::quantize_q4_0,
              "Returns (codes, scale): int8 codes -8 .. 7 in blocks of 32, and their float16 scales.",
              arg("x"));
  bind_blocks(m, "quantize_q8_0", ggml::quantize_q8_0,
              "Returns (codes, scale): int8 codes -127 .. 127 in blocks of 32, rounded half away from zero.",
              arg("x"));
  bind_blocks(m, "quantize_q8_0_activation", ggml::quantize_q8_0_activation,
              "Returns (codes, scale) of activations at run time, rounded half to even.", arg("x"));
  bind_function(
      m, "pack_q4_0",
      [](const Tensor& codes, const Tensor& scale) {
        return ggml::pack_q4_0({codes, scale});
      },
      "Returns the blocks as bytes of a file, 18 bytes for each block.", arg("codes"), arg("scale"));
  bind_function(
      m, "pack_q8_0",
      [](const Tensor& codes, const Tensor& scale) {
        return ggml::pack_q8_0({codes, scale});
      },
      "Returns the blocks as bytes of a file, 34 bytes for each block.", arg("codes"), arg("scale"));
  bind_blocks(m, "unpack_q4_0", ggml::unpack_q4_0, "Returns (codes, scale) of bytes of a file.",
              arg("bytes"));
  bind_blocks(m, "unpack_q8_0", ggml::unpack_q8_0, "Returns (codes, scale) of bytes of a file.",
              arg("bytes"));
  // x: [M, K], weight [N, K], result [M, N]. The two buffers of ggml add block sums in different orders.
  bind_function(
      m, "matmul_q4_0_q8_0",
      [](const Tensor& x, const Tensor& codes, const Tensor& scale, ggml::Buffer buffer) {
        return ggml::matmul_q4_0_q8_0(x, {codes, scale}, buffer);
      },
      "Returns the product of x and the rows of a Q4_0 weight. buffer is \"plain\" or \"repack\".", arg("x"),
      arg("codes"), arg("scale"), arg("buffer") = "plain");
  bind_function(
      m, "matmul_q8_0",
      [](const Tensor& x, const Tensor& codes, const Tensor& scale) {
        return ggml::matmul_q8_0(x, {codes, scale});
      },
      "Returns the product of x and the rows of a Q8_0 weight.", arg("x"), arg("codes"), arg("scale"));
}

// x: [M, K] f32. codes: [N, K] i8. scale: [N] f32, or [N, K / block_size] for blocks. bias: [N] f32. y: [M,
// N] f32.
void bind_xnnpack(nb::module_& module) {
  nb::module_ m = module.def_submodule("xnnpack", "Linear layers of XNNPACK, with the same bits on x86-64.");
  bind_function(m, "linear_qd8_qc8w", xnnpack::linear_qd8_qc8w,
                "Returns the product of dynamic int8 inputs and int8 weights [N, K] with one scale per row.",
                arg("x"), arg("codes"), arg("scale"), arg("bias") = none());
  bind_function(m, "linear_qd8_qc4w", xnnpack::linear_qd8_qc4w,
                "Returns the product of dynamic int8 inputs and codes -8 .. 7 with one scale per row.",
                arg("x"), arg("codes"), arg("scale"), arg("bias") = none());
  bind_function(m, "linear_qd8_qb4w", xnnpack::linear_qd8_qb4w,
                "Returns the product of dynamic int8 inputs and codes -8 .. 7 in blocks along K.", arg("x"),
                arg("codes"), arg("scale"), arg("block_size"), arg("bias") = none());
  bind_function(
      m, "linear_qs8",
      [](const Tensor& x, float x_scale, int x_zero, const Tensor& codes, const Tensor& scale, float y_scale,
         int y_zero, const Tensor& bias) {
        const auto out = xnnpack::linear_qs8(x, {x_scale, x_zero}, codes, scale, {y_scale, y_zero}, bias);
        return std::tuple(out.codes, out.y);
      },
      "Returns (codes, y) of a linear layer with static int8 inputs and outputs.", arg("x"), arg("x_scale"),
      arg("x_zero_point"), arg("codes"), arg("scale"), arg("y_scale"), arg("y_zero_point"),
      arg("bias") = none());
}

// x: [M, K] f32. Weight codes: [K, N] i8 for MatMulInteger, [N, K] for MatMulNBits.
void bind_dynamic(nb::module_& m) {
  bind_function(
      m, "onnx.dynamic_quantize_linear",
      [](const Tensor& x) {
        const auto out = onnx::dynamic_quantize_linear(x);
        return std::tuple(out.codes, out.scale, out.zero_point);
      },
      "Returns (codes, scale, zero_point): uint8 codes for the range of x.", arg("x"));
  bind_function(
      m, "dynamic_quantize_matmul", onnx::dynamic_quantize_matmul,
      "Returns the product of x [M, K] and int8 codes [K, N] by DynamicQuantizeLinear and MatMulInteger.",
      arg("x"), arg("codes"), arg("scale"), arg("bias") = none());
  bind_function(
      m, "onnx.matmulnbits_level4", onnx::matmulnbits_level4,
      "Returns MatMulNBits of accuracy level 4: the product of x and codes -8 .. 7 [N, K] in blocks along K.",
      arg("x"), arg("codes"), arg("scale"), arg("block_size"));
  // q: [B, S, heads * D]. k, v: [B, S, kv_heads * D]. Codes of the cache: [B, kv_heads, S, D] i8.
  bind_function(
      m, "onnx.gqa_int8_kv",
      [](const Tensor& q, const Tensor& k, const Tensor& v, const Constant& k_scale, const Constant& v_scale,
         std::int64_t heads, std::int64_t kv_heads) {
        const auto scale = [](const Constant& given, const char* name) {
          return given.tensor("onnx.gqa_int8_kv", name);
        };
        const auto out = onnx::gqa_int8_kv(q, k, v, scale(k_scale, "k_scale"), scale(v_scale, "v_scale"),
                                           {heads, kv_heads});
        return std::tuple(out.k_codes, out.v_codes, out.y);
      },
      "Returns (k_codes, v_codes, y) of GroupQueryAttention with an int8 cache.", arg("q"), arg("k"),
      arg("v"), arg("k_scale"), arg("v_scale"), arg("heads"), arg("kv_heads"));
}

}  // namespace

void bind_engines(nb::module_& module) {
  nb::module_ onnx =
      module.def_submodule("onnx", "Operators of ONNX, with the bits of ONNX Runtime on a CPU.");
  bind_onnx(onnx);
  bind_dynamic(onnx);
  bind_tripy(module);
  bind_tensorrt(module);
  bind_ggml(module);
  bind_xnnpack(module);
}

}  // namespace fq::python
