#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "fakequant/reference/onnx.h"
#include "fakequant/reference/tensorrt.h"
#include "fakequant/reference/tripy.h"
#include "graded.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;

void bind_onnx(nb::module_& module) {
  nb::module_ m = module.def_submodule("onnx", "ONNX's operators, with ONNX Runtime's bits on a CPU.");
  m.def(
      "quantize_linear",
      [](nb::object x, nb::object scale, nb::object zero_point, int axis, std::int64_t block_size,
         bool saturate, nb::object output_dtype) {
        const Call call{"onnx.quantize_linear", x};
        const Constant a = call.constant(x, "x"), s = call.constant(scale, "scale"),
                       z = call.constant(zero_point, "zero_point");
        const auto type = call.dtype(output_dtype, "output_dtype");
        return call.give(
            unlocked([&] { return onnx::quantize_linear(a, s, z, axis, block_size, saturate, type); }));
      },
      arg("x"), arg("scale"), arg("zero_point") = none(), arg("axis") = 1, arg("block_size") = 0,
      arg("saturate") = true, arg("output_dtype") = none(), "Codes: saturate(rne(x / scale) + zero_point).");
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
      arg("output_dtype") = none(), "(codes - zero_point) * scale.");
}

void bind_tripy(nb::module_& module) {
  nb::module_ m = module.def_submodule("tripy", "Quantize and dequantize as NVIDIA Tripy defines them.");
  m.def(
      "quantize",
      [](nb::object input, nb::object scale, nb::object dtype, std::optional<int> dim) {
        const Call call{"tripy.quantize", input};
        const Constant x = call.constant(input, "input"), s = call.constant(scale, "scale");
        const DType type = call.dtype(dtype, "dtype", DType::i8);
        return call.give(unlocked([&] { return tripy::quantize(x, s, type, dim); }));
      },
      arg("input"), arg("scale"), arg("dtype"), arg("dim") = none(), "Codes saturate(rne(input / scale)).");
  m.def(
      "dequantize",
      [](nb::object input, nb::object scale, nb::object dtype, std::optional<int> dim) {
        const Call call{"tripy.dequantize", input};
        const Constant x = call.constant(input, "input"), s = call.constant(scale, "scale");
        const DType type = call.dtype(dtype, "dtype", DType::f32);
        return call.give(unlocked([&] { return tripy::dequantize(x, s, type, dim); }));
      },
      arg("input"), arg("scale"), arg("dtype") = "float32", arg("dim") = none(), "codes * scale.");
}

void bind_tensorrt(nb::module_& module) {
  nb::module_ m =
      module.def_submodule("tensorrt", "TensorRT's Quantize and Dequantize layers, and cache entries.");
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
      "Codes saturate(rne(input / scale)).");
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
      "codes * scale.");
  m.def("calibration_cache_entry", &tensorrt::calibration_cache_entry, arg("amax"),
        "The entry of a signed 8-bit tensor of that range.");
  m.def(
      "calibration_cache_scale",
      [](const std::string& entry) { return tensorrt::calibration_cache_scale(entry); }, arg("entry"),
      "The scale of an entry.");
}

}  // namespace

void bind_engines(nb::module_& module) {
  bind_onnx(module);
  bind_tripy(module);
  bind_tensorrt(module);
}

}  // namespace fq::python
