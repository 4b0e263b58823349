#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "fakequant/reference/ggml.h"
#include "fakequant/reference/onnx.h"
#include "fakequant/reference/tensorrt.h"
#include "fakequant/reference/xnnpack.h"
#include "graded.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;

// Every binding converts its arguments first, computes without the interpreter's lock (`unlocked`), and
// returns arrays of the type of the first argument.
void bind_onnx(nb::module_& module) {
  nb::module_ m = module.def_submodule("onnx", "Operators of ONNX, with the bits of ONNX Runtime on a CPU.");
  m.def(
      "quantize_linear",
      [](nb::object x, nb::object scale, nb::object zero_point, int axis, std::int64_t block_size,
         bool saturate, nb::object output_dtype) {
        const Call call{"onnx.quantize_linear", x};
        // Scale and zero point: rank 0 per tensor, rank 1 along `axis`, the rank of x for blocks.
        const Constant a = call.constant(x, "x"), s = call.constant(scale, "scale"),
                       z = call.constant(zero_point, "zero_point");
        const auto type = call.dtype(output_dtype, "output_dtype");
        return call.give(
            unlocked([&] { return onnx::quantize_linear(a, s, z, axis, block_size, saturate, type); }));
      },
      arg("x"), arg("scale"), arg("zero_point") = none(), arg("axis") = 1, arg("block_size") = 0,
      arg("saturate") = true, arg("output_dtype") = none(),
      "Returns the codes saturate(rne(x / scale) + zero_point). `scale` has one value, one for each index of "
      "`axis`, or one for each block of `block_size` elements along it.");
  m.def(
      "dequantize_linear",
      [](nb::object codes, nb::object scale, nb::object zero_point, int axis, std::int64_t block_size,
         nb::object output_dtype) {
        const Call call{"onnx.dequantize_linear", codes};
        const Constant c = call.constant(codes, "codes"), s = call.constant(scale, "scale"),
                       z = call.constant(zero_point, "zero_point");
        const auto type = call.dtype(output_dtype, "output_dtype");
        return call.give(unlocked([&] { return onnx::dequantize_linear(c, s, z, axis, block_size, type); }));
      },
      arg("codes"), arg("scale"), arg("zero_point") = none(), arg("axis") = 1, arg("block_size") = 0,
      arg("output_dtype") = none(),
      "Returns (codes - zero_point) * scale, with the scales of quantize_linear.");
}

// Tripy has no zero point. Rank-2 scales are blocks over axis 0 (golden/README.md, onnx.h5).
void bind_tripy(nb::module_& module) {
  nb::module_ m = module.def_submodule("tripy", "Quantize and dequantize of NVIDIA Tripy.");
  m.def(
      "quantize",
      [](nb::object input, nb::object scale, nb::object dtype, std::optional<int> dim) {
        const Call call{"tripy.quantize", input};
        const Constant x = call.constant(input, "input"), s = call.constant(scale, "scale");
        const DType type = call.dtype(dtype, "dtype", DType::i8);
        return call.give(unlocked([&] { return tripy::quantize(x, s, type, dim); }));
      },
      arg("input"), arg("scale"), arg("dtype"), arg("dim") = none(),
      "Returns the codes saturate(rne(input / scale)).");
  m.def(
      "dequantize",
      [](nb::object input, nb::object scale, nb::object dtype, std::optional<int> dim) {
        const Call call{"tripy.dequantize", input};
        const Constant x = call.constant(input, "input"), s = call.constant(scale, "scale");
        const DType type = call.dtype(dtype, "dtype", DType::f32);
        return call.give(unlocked([&] { return tripy::dequantize(x, s, type, dim); }));
      },
      arg("input"), arg("scale"), arg("dtype") = "float32", arg("dim") = none(), "Returns codes * scale.");
}

// TensorRT has the arithmetic of ONNX and requires zero points of 0.
void bind_tensorrt(nb::module_& module) {
  nb::module_ m = module.def_submodule(
      "tensorrt", "Quantize and Dequantize layers of TensorRT, and entries of calibration caches.");
  m.def(
      "quantize",
      [](nb::object input, nb::object scale, nb::object to_type, int axis, nb::object zero_point) {
        const Call call{"tensorrt.quantize", input};
        const Constant x = call.constant(input, "input"), s = call.constant(scale, "scale"),
                       z = call.constant(zero_point, "zero_point");
        const DType type = call.dtype(to_type, "to_type", DType::i8);
        return call.give(unlocked([&] { return tensorrt::quantize(x, s, type, axis, z); }));
      },
      arg("input"), arg("scale"), arg("to_type") = "int8", arg("axis") = 1, arg("zero_point") = none(),
      "Returns the codes saturate(rne(input / scale)).");
  m.def(
      "dequantize",
      [](nb::object input, nb::object scale, nb::object dtype, int axis, nb::object zero_point) {
        const Call call{"tensorrt.dequantize", input};
        const Constant x = call.constant(input, "input"), s = call.constant(scale, "scale"),
                       z = call.constant(zero_point, "zero_point");
        const DType type = call.dtype(dtype, "dtype", DType::f32);
        return call.give(unlocked([&] { return tensorrt::dequantize(x, s, type, axis, z); }));
      },
      arg("input"), arg("scale"), arg("dtype") = "float32", arg("axis") = 1, arg("zero_point") = none(),
      "Returns codes * scale.");
  m.def("calibration_cache_entry", &tensorrt::calibration_cache_entry, arg("amax"),
        "Returns the cache entry of a signed 8-bit tensor with this range.");
  m.def(
      "calibration_cache_scale",
      [](const std::string& entry) { return tensorrt::calibration_cache_scale(entry); }, arg("entry"),
      "Returns the scale of a cache entry.");
}

/// Binds a function of one array that returns blocks.
void bind_blocks(nb::module_& m, const char* name, ggml::Blocks (*f)(const Tensor&), const char* argument,
                 const char* about) {
  m.def(
      name,
      [name, f, argument](nb::object x) {
        const Call call{name, x};
        const Tensor input = call.tensor(x, argument);
        const ggml::Blocks out = unlocked([&] { return f(input); });
        return nb::make_tuple(call.give(out.codes), call.give(out.scale));
      },
      arg(argument), about);
}

void bind_packing(nb::module_& m, const char* name, Tensor (*f)(const ggml::Blocks&), const char* about) {
  m.def(
      name,
      [name, f](nb::object codes, nb::object scale) {
        const Call call{name, codes};
        const ggml::Blocks blocks{call.tensor(codes, "codes"), call.tensor(scale, "scale")};
        return call.give(unlocked([&] { return f(blocks); }));
      },
      arg("codes"), arg("scale"), about);
}

// x: [rows, K] f32, K a multiple of 32. codes: [rows, K] i8. scale: [rows, K / 32] f16. A file block of 32
// codes has 2 bytes of scale, then 16 (Q4_0) or 32 (Q8_0) bytes of codes.
void bind_ggml(nb::module_& module) {
  nb::module_ m = module.def_submodule("ggml", "Blocks and products of ggml, with the same bits on x86-64.");
  bind_blocks(
      m, "quantize_q4_0", [](const Tensor& x) { return ggml::quantize_q4_0(x); }, "x",
      "Returns (codes, scale): int8 codes -8 .. 7 in blocks of 32, and their float16 scales.");
  bind_blocks(
      m, "quantize_q8_0", [](const Tensor& x) { return ggml::quantize_q8_0(x); }, "x",
      "Returns (codes, scale): int8 codes -127 .. 127 in blocks of 32, rounded half away from zero.");
  bind_blocks(
      m, "quantize_q8_0_activation", [](const Tensor& x) { return ggml::quantize_q8_0_activation(x); }, "x",
      "Returns (codes, scale) of activations at run time, rounded half to even.");
  bind_packing(
      m, "pack_q4_0", [](const ggml::Blocks& blocks) { return ggml::pack_q4_0(blocks); },
      "Returns the blocks as bytes of a file, 18 bytes for each block.");
  bind_packing(
      m, "pack_q8_0", [](const ggml::Blocks& blocks) { return ggml::pack_q8_0(blocks); },
      "Returns the blocks as bytes of a file, 34 bytes for each block.");
  bind_blocks(
      m, "unpack_q4_0", [](const Tensor& bytes) { return ggml::unpack_q4_0(bytes); }, "bytes",
      "Returns (codes, scale) of bytes of a file.");
  bind_blocks(
      m, "unpack_q8_0", [](const Tensor& bytes) { return ggml::unpack_q8_0(bytes); }, "bytes",
      "Returns (codes, scale) of bytes of a file.");
  m.def(
      "matmul_q4_0_q8_0",
      [](nb::object x, nb::object codes, nb::object scale, const std::string& buffer) {
        const Call call{"matmul_q4_0_q8_0", x};
        const Tensor input = call.tensor(x, "x");
        const ggml::Blocks weight{call.tensor(codes, "codes"), call.tensor(scale, "scale")};
        // x: [M, K], weight [N, K], result [M, N]. The two buffers of ggml add block sums in different
        // orders.
        const auto kind = ggml::buffer(buffer);
        return call.give(unlocked([&] { return ggml::matmul_q4_0_q8_0(input, weight, kind); }));
      },
      arg("x"), arg("codes"), arg("scale"), arg("buffer") = "plain",
      "Returns the product of x and the rows of a Q4_0 weight. buffer is \"plain\" or \"repack\".");
  m.def(
      "matmul_q8_0",
      [](nb::object x, nb::object codes, nb::object scale) {
        const Call call{"matmul_q8_0", x};
        const Tensor input = call.tensor(x, "x");
        const ggml::Blocks weight{call.tensor(codes, "codes"), call.tensor(scale, "scale")};
        return call.give(unlocked([&] { return ggml::matmul_q8_0(input, weight); }));
      },
      arg("x"), arg("codes"), arg("scale"), "Returns the product of x and the rows of a Q8_0 weight.");
}

// Arguments x, codes, scale and bias, which may be undefined.
using Linear = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&);

void bind_linear(nb::module_& m, const char* name, Linear f, const char* about) {
  m.def(
      name,
      [name, f](nb::object x, nb::object codes, nb::object scale, nb::object bias) {
        const Call call{name, x};
        const Tensor input = call.tensor(x, "x"), c = call.tensor(codes, "codes"),
                     s = call.tensor(scale, "scale"), b = call.tensor(bias, "bias");
        return call.give(unlocked([&] { return f(input, c, s, b); }));
      },
      arg("x"), arg("codes"), arg("scale"), arg("bias") = none(), about);
}

// x: [M, K] f32. codes: [N, K] i8. scale: [N] f32, or [N, K / block_size] for blocks. bias: [N] f32. y: [M,
// N] f32.
void bind_xnnpack(nb::module_& module) {
  nb::module_ m = module.def_submodule("xnnpack", "Linear layers of XNNPACK, with the same bits on x86-64.");
  bind_linear(m, "linear_qd8_qc8w", xnnpack::linear_qd8_qc8w,
              "Returns the product of dynamic int8 inputs and int8 weights [N, K] with one scale per row.");
  bind_linear(m, "linear_qd8_qc4w", xnnpack::linear_qd8_qc4w,
              "Returns the product of dynamic int8 inputs and codes -8 .. 7 with one scale per row.");
  m.def(
      "linear_qd8_qb4w",
      [](nb::object x, nb::object codes, nb::object scale, std::int64_t block_size, nb::object bias) {
        const Call call{"linear_qd8_qb4w", x};
        const Tensor input = call.tensor(x, "x"), c = call.tensor(codes, "codes"),
                     s = call.tensor(scale, "scale"), b = call.tensor(bias, "bias");
        return call.give(unlocked([&] { return xnnpack::linear_qd8_qb4w(input, c, s, block_size, b); }));
      },
      arg("x"), arg("codes"), arg("scale"), arg("block_size"), arg("bias") = none(),
      "Returns the product of dynamic int8 inputs and codes -8 .. 7 in blocks along K.");
  m.def(
      "linear_qs8",
      [](nb::object x, float x_scale, int x_zero_point, nb::object codes, nb::object scale, float y_scale,
         int y_zero_point, nb::object bias) {
        const Call call{"linear_qs8", x};
        const Tensor input = call.tensor(x, "x"), c = call.tensor(codes, "codes"),
                     s = call.tensor(scale, "scale"), b = call.tensor(bias, "bias");
        const auto out = unlocked([&] {
          return xnnpack::linear_qs8(input, {x_scale, x_zero_point}, c, s, {y_scale, y_zero_point}, b);
        });
        return nb::make_tuple(call.give(out.codes), call.give(out.y));
      },
      arg("x"), arg("x_scale"), arg("x_zero_point"), arg("codes"), arg("scale"), arg("y_scale"),
      arg("y_zero_point"), arg("bias") = none(),
      "Returns (codes, y) of a linear layer with static int8 inputs and outputs.");
}

// q: [B, S, heads * D]. k, v: [B, S, kv_heads * D]. Codes of the cache: [B, kv_heads, S, D] i8.
void bind_attention(nb::module_& m) {
  m.def(
      "gqa_int8_kv",
      [](nb::object q, nb::object k, nb::object v, nb::object k_scale, nb::object v_scale, std::int64_t heads,
         std::int64_t kv_heads) {
        const Call call{"onnx.gqa_int8_kv", q};
        const Tensor queries = call.tensor(q, "q"), keys = call.tensor(k, "k"), values = call.tensor(v, "v"),
                     ks = call.constant(k_scale, "k_scale").tensor("onnx.gqa_int8_kv", "k_scale"),
                     vs = call.constant(v_scale, "v_scale").tensor("onnx.gqa_int8_kv", "v_scale");
        const auto out = unlocked([&] {
          return onnx::gqa_int8_kv(queries, keys, values, ks, vs, {heads, kv_heads});
        });
        return nb::make_tuple(call.give(out.k_codes), call.give(out.v_codes), call.give(out.y));
      },
      arg("q"), arg("k"), arg("v"), arg("k_scale"), arg("v_scale"), arg("heads"), arg("kv_heads"),
      "Returns (k_codes, v_codes, y) of GroupQueryAttention with an int8 cache.");
}

// x: [M, K] f32. Weight codes: [K, N] i8 for MatMulInteger, [N, K] for MatMulNBits.
void bind_dynamic(nb::module_ m) {
  m.def(
      "dynamic_quantize_linear",
      [](nb::object x) {
        const Call call{"onnx.dynamic_quantize_linear", x};
        const Tensor input = call.tensor(x, "x");
        const auto out = unlocked([&] { return onnx::dynamic_quantize_linear(input); });
        return nb::make_tuple(call.give(out.codes), call.give(out.scale), call.give(out.zero_point));
      },
      arg("x"), "Returns (codes, scale, zero_point): uint8 codes for the range of x.");
  bind_linear(
      m, "dynamic_quantize_matmul", onnx::dynamic_quantize_matmul,
      "Returns the product of x [M, K] and int8 codes [K, N] by DynamicQuantizeLinear and MatMulInteger.");
  m.def(
      "matmulnbits_level4",
      [](nb::object x, nb::object codes, nb::object scale, std::int64_t block_size) {
        const Call call{"onnx.matmulnbits_level4", x};
        const Tensor input = call.tensor(x, "x"), c = call.tensor(codes, "codes"),
                     s = call.tensor(scale, "scale");
        return call.give(unlocked([&] { return onnx::matmulnbits_level4(input, c, s, block_size); }));
      },
      arg("x"), arg("codes"), arg("scale"), arg("block_size"),
      "Returns MatMulNBits of accuracy level 4: the product of x and codes -8 .. 7 [N, K] in blocks along "
      "K.");
  bind_attention(m);
}

}  // namespace

void bind_engines(nb::module_& module) {
  bind_onnx(module);
  bind_tripy(module);
  bind_tensorrt(module);
  // Part of the submodule that bind_onnx made.
  bind_dynamic(nb::borrow<nb::module_>(module.attr("onnx")));
  bind_ggml(module);
  bind_xnnpack(module);
}

}  // namespace fq::python
