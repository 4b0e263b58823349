#include "fakequant/reference/modelopt.h"

#include <nanobind/stl/optional.h>

#include "bindings.h"
#include "graded.h"
#include "kinds.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;

/// Returns the bias, a number or an array.
Tensor offset(const Call& call, nb::handle bias) {
  return is_number(bias) ? Tensor::scalar(nb::cast<double>(bias)) : call.tensor(bias, "bias");
}

void bind_integers(nb::module_& m) {
  m.def(
      "fake_tensor_quant",
      [](nb::object x, nb::object amax, nb::object bias, int num_bits, bool is_unsigned, bool narrow_range,
         bool pass_through_bwd, nb::object grad_y) {
        const Call call{"fake_tensor_quant", x};
        const auto range = call.range(amax, "amax");
        const Tensor shift = offset(call, bias);
        return graded(call, x, grad_y, [&](const Variable& v) {
          const auto by = [&](const auto& given) {
            return modelopt::fake_tensor_quant(v, given, shift, num_bits, is_unsigned, narrow_range,
                                               pass_through_bwd);
          };
          return std::visit(by, range);
        });
      },
      arg("x"), arg("amax"), arg("bias") = none(), arg("num_bits") = 8, arg("unsigned") = false,
      arg("narrow_range") = true, arg("pass_through_bwd") = false, arg("grad_y") = none(),
      "Integers, with ModelOpt's bits: y = clamp(rne(x * s), lo, hi) / s with s = hi / amax.\n\nx is "
      "float32, float16, "
      "bfloat16 or float64; amax a number, a list or an array that broadcasts. With grad_y it gives (y, "
      "grad_x).");
  m.def(
      "int_cast_ste",
      [](nb::object x, int num_bits, bool is_unsigned, bool narrow_range, nb::object grad_y) {
        return graded(Call{"int_cast_ste", x}, x, grad_y, [&](const Variable& v) {
          return modelopt::int_cast_ste(v, num_bits, is_unsigned, narrow_range);
        });
      },
      arg("x"), arg("num_bits"), arg("unsigned") = false, arg("narrow_range") = true, arg("grad_y") = none(),
      "Integers without a scale: y = clamp(rne(x), lo, hi). With grad_y it gives (y, grad_x).");
}

void bind_floats(nb::module_& m) {
  m.def(
      "scaled_e4m3",
      [](nb::object x, nb::object amax, nb::object bias, int exponent, int mantissa, bool pass_through_bwd,
         nb::object grad_y) {
        const Call call{"scaled_e4m3", x};
        const auto range = call.range(amax, "amax");
        const Tensor shift = offset(call, bias);
        return graded(call, x, grad_y, [&](const Variable& v) {
          const auto by = [&](const auto& given) {
            return modelopt::scaled_e4m3(v, given, shift, exponent, mantissa, pass_through_bwd);
          };
          return std::visit(by, range);
        });
      },
      arg("x"), arg("amax") = none(), arg("bias") = none(), arg("E") = 4, arg("M") = 3,
      arg("pass_through_bwd") = false, arg("grad_y") = none(),
      "FP8: y = e4m3(clamp(x * s, -448, 448)) * (1 / s), s = 448 / amax; without amax y = e4m3(x). With "
      "grad_y it gives "
      "(y, grad_x).");
  m.def(
      "fp4_cast_ste",
      [](nb::object x, nb::object out_dtype, nb::object grad_y) {
        const Call call{"fp4_cast_ste", x};
        const auto type = call.dtype(out_dtype, "out_dtype");
        return graded(call, x, grad_y, [&](const Variable& v) { return modelopt::fp4_cast_ste(v, type); });
      },
      arg("x"), arg("out_dtype") = none(), arg("grad_y") = none(),
      "FP4 without a scale: y = e2m1(|x|), negative unless x >= 0. With grad_y it gives (y, grad_x).");
}

void bind_blocks(nb::module_& m) {
  m.def(
      "compute_fp4_scales",
      [](nb::object amax, nb::object global_amax, bool quantize_block_scales, double normalization) {
        const Call call{"compute_fp4_scales", amax};
        const Amax blocks = call.amax(amax, "amax"), global = call.amax(global_amax, "global_amax");
        return call.give(unlocked([&] {
          return modelopt::compute_fp4_scales(blocks, global, quantize_block_scales, normalization);
        }));
      },
      arg("amax"), arg("global_amax") = none(), arg("quantize_block_scales") = true,
      arg("fp8_max_for_normalization") = 448.0, "Scales of FP4 blocks, float32, in the shape of amax.");
  m.def(
      "static_blockwise_fp4_fake_quant",
      [](nb::object x, nb::object amax, nb::object global_amax, bool quantize_block_scales,
         double normalization, nb::object out_dtype, bool pass_through_bwd, nb::object grad_y) {
        const Call call{"static_blockwise_fp4_fake_quant", x};
        const Amax blocks = call.amax(amax, "amax"), global = call.amax(global_amax, "global_amax");
        const auto type = call.dtype(out_dtype, "out_dtype");
        return graded(call, x, grad_y, [&](const Variable& v) {
          return modelopt::static_blockwise_fp4_fake_quant(v, blocks, global, quantize_block_scales,
                                                           normalization, type, pass_through_bwd);
        });
      },
      arg("x"), arg("amax"), arg("global_amax") = none(), arg("quantize_block_scales") = true,
      arg("fp8_max_for_normalization") = 448.0, arg("out_dtype") = none(), arg("pass_through_bwd") = false,
      arg("grad_y") = none(), "FP4 with given ranges of blocks. With grad_y it gives (y, grad_x).");
  m.def(
      "dynamic_block_quantize",
      [](nb::object x, nb::object num_bits, nb::object scale_bits, std::int64_t block_size,
         nb::object global_amax, bool triton, bool pass_through_bwd, nb::object grad_y) {
        const Call call{"dynamic_block_quantize", x};
        const Amax global = call.amax(global_amax, "global_amax");
        const NumBits bits = call.num_bits(num_bits, "num_bits"),
                      scales = call.num_bits(scale_bits, "scale_bits");
        const auto kernel = triton ? modelopt::BlockKernel::triton : modelopt::BlockKernel::cuda_ext;
        return graded(call, x, grad_y, [&](const Variable& v) {
          return modelopt::dynamic_block_quantize(v, bits, scales, block_size, global, kernel,
                                                  pass_through_bwd);
        });
      },
      arg("x"), arg("num_bits"), arg("scale_bits"), arg("block_size"), arg("global_amax") = none(),
      arg("triton") = false, arg("pass_through_bwd") = true, arg("grad_y") = none(),
      "Blocks along the last axis whose scales are found from x: MXFP8 is ((4, 3), (8, 0), 32), NVFP4 ((2, "
      "1), (4, 3), 16). "
      "With triton the bits are those of the Triton kernel. With grad_y it gives (y, grad_x).");
}

}  // namespace

void bind_modelopt(nb::module_& module) {
  nb::module_ m = module.def_submodule("modelopt", "NVIDIA ModelOpt's functions, with its bits on a CPU.");
  bind_integers(m);
  bind_floats(m);
  bind_blocks(m);
  bind_modelopt_qtensor(m);
}

}  // namespace fq::python
