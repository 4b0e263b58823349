#include "fakequant/reference/pytorch_quantization.h"

#include "bindings.h"
#include "foreign_array.h"
#include "typed.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;
namespace pq = pytorch_quantization;

/// Returns the range in its own element type. The type takes part in the arithmetic of the reference: a
/// float16 array must not become f32.
Tensor range_tensor(const Call& call, nb::handle amax) {
  const auto array = !amax.is_none() && !is_number(amax) && !is_list(amax);
  return array ? call.host(amax, "amax") : call.amax(amax, "amax").tensor();
}

nb::object tensor_quant(nb::object x, nb::object amax, int num_bits, bool is_unsigned, bool narrow_range,
                        nb::object output_dtype, nb::object grad_codes) {
  const Call call{"tensor_quant", x};
  const Tensor range = range_tensor(call, amax);
  const auto type = call.dtype(output_dtype, "output_dtype");
  // The function has two results, and `graded` returns one: the scale leaves the lambda by reference.
  Tensor scale;
  const nb::object first = graded(call, x, grad_codes, [&](const Variable& v) {
    const auto [codes, s] = pq::tensor_quant(v, range, num_bits, is_unsigned, narrow_range, type);
    scale = s.tensor();
    return codes;
  });
  // `first` is the codes, or (codes, grad_x).
  if (grad_codes.is_none()) return nb::make_tuple(first, call.give(scale));
  return nb::make_tuple(first[0], call.give(scale), first[1]);
}

nb::object clip(nb::object x, nb::object lowest, nb::object highest, nb::object grad_y) {
  const Call call{"clip", x};
  const bool wants_gradient = !grad_y.is_none();
  // The bounds are Variables, because clip has gradients with respect to both.
  const auto bound = [&](nb::handle value, const char* name) {
    return Variable(call.constant(value, name).tensor("clip", name), wants_gradient);
  };
  const Variable low = bound(lowest, "clip_value_min"), high = bound(highest, "clip_value_max");
  const nb::object out = graded(call, x, grad_y, [&](const Variable& v) { return pq::clip(v, low, high); });
  return wants_gradient ? nb::make_tuple(out[0], out[1], call.give(low.grad()), call.give(high.grad())) : out;
}

}  // namespace

void bind_pytorch_quantization(nb::module_& module) {
  nb::module_ m = module.def_submodule("pytorch_quantization",
                                       "Functions of pytorch-quantization 2.2.1, with the same bits.");
  m.def("tensor_quant", &tensor_quant, arg("x"), arg("amax"), arg("num_bits") = 8, arg("unsigned") = false,
        arg("narrow_range") = true, arg("output_dtype") = none(), arg("grad_y") = none(),
        "Returns (codes, scale): codes = clamp(rne(x * scale), lo, hi) as floats; codes / scale approximates "
        "x. With grad_y, the gradient of the codes, it returns (codes, scale, grad_x).");
  m.def(
      "legacy_fake_tensor_quant",
      [](nb::object x, nb::object amax, int num_bits, bool is_unsigned, bool narrow_range,
         nb::object grad_y) {
        const Call call{"legacy_fake_tensor_quant", x};
        const Tensor range = range_tensor(call, amax);
        return graded(call, x, grad_y, [&](const Variable& v) {
          return pq::legacy_fake_tensor_quant(v, range, num_bits, is_unsigned, narrow_range);
        });
      },
      arg("x"), arg("amax"), arg("num_bits") = 8, arg("unsigned") = false, arg("narrow_range") = true,
      arg("grad_y") = none(),
      "Returns y = codes / scale of tensor_quant. With grad_y it returns (y, grad_x).");
  bind_graded(
      m, "fake_affine_tensor_quant",
      [](const Variable& x, const Amax& low, const Amax& high, int num_bits) {
        return pq::fake_affine_tensor_quant(x, low, high, num_bits);
      },
      "Quantizes with an affine grid over a range that need not be symmetric. Returns y. With grad_y it "
      "returns (y, grad_x).",
      arg("x"), arg("min_range"), arg("max_range"), arg("num_bits") = 8);
  m.def("clip", &clip, arg("x"), arg("clip_value_min"), arg("clip_value_max"), arg("grad_y") = none(),
        "Returns max(min(x, clip_value_max), clip_value_min). With grad_y it returns (y, grad_x, grad_min, "
        "grad_max).");
}

}  // namespace fq::python
