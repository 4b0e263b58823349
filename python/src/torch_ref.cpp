#include "fakequant/reference/torch_ref.h"

#include "bindings.h"
#include "typed.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;
using Type = std::optional<DType>;

void bind_learnable(nb::module_& m) {
  m.def(
      "fake_quantize_learnable",
      [](nb::object x, nb::object scale, nb::object zero_point, nb::object axis, std::int64_t quant_min,
         std::int64_t quant_max, double grad_factor, nb::object grad_y) {
        const Call call{"fake_quantize_learnable", x};
        const bool wants_gradient = !grad_y.is_none();
        // Scale and zero point are trained, so they are Variables with gradients of their own.
        const Variable s(call.constant(scale, "scale").tensor(call.function, "scale"), wants_gradient);
        const Variable z(call.constant(zero_point, "zero_point").tensor(call.function, "zero_point"),
                         wants_gradient);
        const nb::object out = graded(call, x, grad_y, [&](const Variable& v) {
          // torch has two functions. Their backward passes round the zero point differently
          // (golden/README.md, torch.h5).
          return axis.is_none() ? torch_ref::fake_quantize_learnable_per_tensor_affine(v, s, z, quant_min,
                                                                                       quant_max, grad_factor)
                                : torch_ref::fake_quantize_learnable_per_channel_affine(
                                      v, s, z, nb::cast<int>(axis), quant_min, quant_max, grad_factor);
        });
        // backward() of `graded` has filled the gradients of scale and zero point.
        return wants_gradient ? nb::make_tuple(out[0], out[1], call.give(s.grad()), call.give(z.grad()))
                              : out;
      },
      arg("x"), arg("scale"), arg("zero_point"), arg("axis") = none(), arg("quant_min") = 0,
      arg("quant_max") = 255, arg("grad_factor") = 1.0, arg("grad_y") = none(),
      "Computes torch's _fake_quantize_learnable_per_tensor_affine, or .._per_channel_affine with an axis. "
      "With grad_y it returns (y, grad_x, grad_scale, grad_zero_point).");
}

// Codes of 8-bit floats: torch's own casts differ by type in how they treat values out of range, hence
// `saturate`.
void bind_casts(nb::module_& m) {
  bind_function(
      m, "cast_float8",
      [](const Tensor& x, Type dtype, bool saturate) {
        return torch_ref::cast_float8(x, dtype.value_or(DType::f8_e4m3), saturate);
      },
      "Returns the codes of an 8-bit float type, rounded half to even.", arg("x"),
      arg("dtype") = "float8_e4m3fn", arg("saturate") = true);
  // The result is an array of numpy for codes of torch too.
  m.def(
      "decode_float8",
      [](nb::object codes, nb::object dtype) {
        const Call call{"decode_float8"};
        const Tensor input = call.tensor(codes, "codes");
        const DType type = call.dtype(dtype, "dtype").value_or(DType::f32);
        return call.give(unlocked([&] { return torch_ref::decode_float8(input, type); }));
      },
      arg("codes"), arg("dtype") = "float32", "Returns the values of codes of an 8-bit float type.");
  bind_function(
      m, "cast_float",
      [](const Tensor& x, Type dtype) { return torch_ref::cast_float(x, dtype.value_or(DType::f32)); },
      "Returns x in another float type, rounded half to even.", arg("x"), arg("dtype"));
}

}  // namespace

void bind_torch_ref(nb::module_& module) {
  nb::module_ m = module.def_submodule(
      "torch_ref", "Fake quantization and casts of PyTorch, with the same bits on a CPU.");
  bind_graded(
      m, "fake_quantize_per_tensor_affine",
      [](const Variable& x, double scale, std::int64_t zero_point, std::int64_t low, std::int64_t high) {
        return torch_ref::fake_quantize_per_tensor_affine(x, scale, zero_point, low, high);
      },
      "Quantizes with one scale and zero point for all elements. Returns y. With grad_y it returns (y, "
      "grad_x).",
      arg("x"), arg("scale"), arg("zero_point"), arg("quant_min"), arg("quant_max"));
  bind_graded(
      m, "fake_quantize_per_channel_affine",
      [](const Variable& x, const Tensor& scale, const Tensor& zero_point, int axis, std::int64_t low,
         std::int64_t high) {
        return torch_ref::fake_quantize_per_channel_affine(x, scale, zero_point, axis, low, high);
      },
      "Quantizes with a scale and a zero point for each index of axis. Returns y. With grad_y it returns (y, "
      "grad_x).",
      arg("x"), arg("scale"), arg("zero_point"), arg("axis"), arg("quant_min"), arg("quant_max"));
  bind_learnable(m);
  bind_casts(m);
}

}  // namespace fq::python
