#include "fakequant/reference/modelopt.h"

#include <optional>

#include <nanobind/stl/map.h>

#include "bindings.h"
#include "foreign_array.h"
#include "typed.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;
using Type = std::optional<DType>;

/// Returns the bias of a number or an array. For None, the result is undefined: there is no bias.
Tensor offset(const Call& call, nb::handle bias) {
  return is_number(bias) ? Tensor::scalar(nb::cast<double>(bias)) : call.tensor(bias, "bias");
}

// `graded` computes y or, with the gradient grad_y, also grad_x (graded.h). Formulas: golden/README.md,
// modelopt_int.h5.
void bind_integers(nb::module_& m) {
  m.def(
      "fake_tensor_quant",
      [](nb::object x, nb::object amax, nb::object bias, int num_bits, bool is_unsigned, bool narrow_range,
         bool pass_through_bwd, nb::object grad_y) {
        const Call call{"fake_tensor_quant", x};
        const auto range = call.range(amax, "amax");
        const Tensor shift = offset(call, bias);
        return graded(call, x, grad_y, [&](const Variable& v) {
          // `range` is an Amax, or a Tensor on a GPU, whose values the call does not wait for. The function
          // has an overload for both.
          const auto by = [&](const auto& given) {
            return modelopt::fake_tensor_quant(v, given, shift, num_bits, is_unsigned, narrow_range,
                                               pass_through_bwd);
          };
          return std::visit(by, range);
        });
      },
      arg("x"), arg("amax"), arg("bias") = none(), arg("num_bits") = 8, arg("unsigned") = false,
      arg("narrow_range") = true, arg("pass_through_bwd") = false, arg("grad_y") = none(),
      "Quantizes to integers with the bits of ModelOpt: y = clamp(rne(x * s), lo, hi) / s with s = hi / "
      "amax. x is float32, float16, bfloat16 or float64. amax is a number, a list or an array that "
      "broadcasts. Returns y. With grad_y it returns (y, grad_x).");
  bind_graded(
      m, "int_cast_ste",
      [](const Variable& x, int num_bits, bool is_unsigned, bool narrow_range) {
        return modelopt::int_cast_ste(x, num_bits, is_unsigned, narrow_range);
      },
      "Rounds to integers without a scale: y = clamp(rne(x), lo, hi). Returns y. With grad_y it returns (y, "
      "grad_x).",
      arg("x"), arg("num_bits"), arg("unsigned") = false, arg("narrow_range") = true);
}

// Formulas: golden/README.md, modelopt_float.h5.
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
      "Quantizes to FP8: y = e4m3(clamp(x * s, -448, 448)) * (1 / s) with s = 448 / amax. Without amax y = "
      "e4m3(x). Returns y. With grad_y it returns (y, grad_x).");
  bind_graded(
      m, "fp4_cast_ste", [](const Variable& x, Type type) { return modelopt::fp4_cast_ste(x, type); },
      "Rounds to FP4 without a scale: y = e2m1(|x|), negative unless x >= 0. Returns y. With grad_y it "
      "returns (y, grad_x).",
      arg("x"), arg("out_dtype") = none());
}

// Block functions take one amax per block, and for FP4 a second level of scales (global_amax).
void bind_blocks(nb::module_& m) {
  bind_function(
      m, "compute_fp4_scales",
      [](const Amax& blocks, const Amax& global, bool quantize_block_scales, double normalization) {
        return modelopt::compute_fp4_scales(blocks, global, quantize_block_scales, normalization);
      },
      "Returns the scales of FP4 blocks, float32, in the shape of amax.", arg("amax"),
      arg("global_amax") = none(), arg("quantize_block_scales") = true,
      arg("fp8_max_for_normalization") = 448.0);
  bind_graded(
      m, "static_blockwise_fp4_fake_quant",
      [](const Variable& x, const Amax& blocks, const Amax& global, bool quantize_block_scales,
         double normalization, Type type, bool pass_through_bwd) {
        return modelopt::static_blockwise_fp4_fake_quant(x, blocks, global, quantize_block_scales,
                                                         normalization, type, pass_through_bwd);
      },
      "Quantizes to FP4 in blocks with given ranges. Returns y. With grad_y it returns (y, grad_x).",
      arg("x"), arg("amax"), arg("global_amax") = none(), arg("quantize_block_scales") = true,
      arg("fp8_max_for_normalization") = 448.0, arg("out_dtype") = none(), arg("pass_through_bwd") = false);
  bind_graded(
      m, "dynamic_block_quantize",
      [](const Variable& x, const NumBits& bits, const NumBits& scales, std::int64_t block_size,
         const Amax& global, bool triton, bool pass_through_bwd) {
        // ModelOpt has two kernels for the same function, which differ in rounding.
        const auto kernel = triton ? modelopt::BlockKernel::triton : modelopt::BlockKernel::cuda_ext;
        return modelopt::dynamic_block_quantize(x, bits, scales, block_size, global, kernel,
                                                pass_through_bwd);
      },
      "Quantizes blocks along the last axis, with scales computed from x. MXFP8 is ((4, 3), (8, 0), 32), "
      "NVFP4 is ((2, 1), (4, 3), 16). With triton the bits are those of the Triton kernel. Returns y. With "
      "grad_y it returns (y, grad_x).",
      arg("x"), arg("num_bits"), arg("scale_bits"), arg("block_size"), arg("global_amax") = none(),
      arg("triton") = false, arg("pass_through_bwd") = true);
}

}  // namespace

void bind_modelopt(nb::module_& module) {
  nb::module_ m =
      module.def_submodule("modelopt", "Functions of NVIDIA ModelOpt, with the same bits on a CPU.");
  bind_integers(m);
  bind_floats(m);
  bind_blocks(m);
  bind_modelopt_qtensor(m);
}

namespace {

using modelopt::QTensor;
using nb::arg, nb::none;

using Numbers = std::vector<std::int64_t>;
// Pickled states have this order, which must not change.
constexpr Tensor QTensor::*kTensors[] = {&QTensor::codes,       &QTensor::scale,        &QTensor::scale2,
                                         &QTensor::scale_codes, &QTensor::double_scale, &QTensor::scale_zero};

nb::tuple state_tuple(const QTensor& q) {
  nb::list tensors;
  for (const auto member : kTensors)
    tensors.append((q.*member).defined() ? nb::cast(q.*member) : nb::object(nb::none()));
  return nb::make_tuple(int(q.format), Numbers(q.shape.begin(), q.shape.end()), std::string(name(q.dtype)),
                        Numbers(q.block.begin(), q.block.end()), tensors);
}

// nanobind passes uninitialised memory to __setstate__.
void set_state(QTensor& self, const nb::tuple& state) {
  new (&self) QTensor();
  self.format = modelopt::PackedFormat(nb::cast<int>(state[0]));
  self.shape = Shape(nb::cast<Numbers>(state[1]));
  self.dtype = *Call{"QTensor"}.dtype(state[2], "dtype");
  self.block = Shape(nb::cast<Numbers>(state[3]));
  // A format uses only some of the tensors. The others stay undefined.
  for (std::size_t i = 0; i < std::size(kTensors); ++i)
    if (const nb::object tensor = state[4][i]; !tensor.is_none())
      self.*kTensors[i] = nb::cast<Tensor>(tensor);
}

void bind_class(nb::module_& m) {
  auto type = nb::class_<QTensor>(m, "QTensor",
                                  "Packed codes and scales, with the shape and type of the source array.");
  type.def_prop_ro(
      "shape",
      [](const QTensor& q) {
        return nb::tuple(nb::cast(std::vector<std::int64_t>(q.shape.begin(), q.shape.end())));
      },
      "Shape of the source array.");
  type.def_prop_ro(
      "dtype", [](const QTensor& q) { return std::string(fq::name(q.dtype)); },
      "Element type of the source array.");
  // Undefined tensors are None in Python.
  const auto tensor = [&](const char* name, Tensor QTensor::*member, const char* about) {
    type.def_prop_ro(
        name, [member](const QTensor& q) { return Call{"QTensor"}.give(q.*member); }, about);
  };
  tensor("codes", &QTensor::codes, "Packed codes.");
  tensor("scale", &QTensor::scale,
         "Factor of the codes (INT4: divisor), one for each block or index of the axes.");
  tensor("scale2", &QTensor::scale2, "NVFP4: factor of all scales, float32.");
  tensor("scale_codes", &QTensor::scale_codes,
         "NF4: int8 codes of the scales [blocks of scales, scale_block_size].");
  tensor("double_scale", &QTensor::double_scale, "NF4: factor of each block of scales.");
  tensor("scale_zero", &QTensor::scale_zero, "NF4: mean of all scales.");
  type.def("__getstate__", &state_tuple).def("__setstate__", &set_state);
  type.def(
      "dequantize",
      [](const QTensor& q, nb::handle dtype) {
        const Call call{"QTensor.dequantize"};
        const auto wanted = call.dtype(dtype, "dtype");
        return call.give(unlocked([&] { return q.dequantize(wanted); }));
      },
      arg("dtype") = none(), "Returns the dequantized values in the shape of x.");
}

}  // namespace

void bind_modelopt_qtensor(nb::module_& m) {
  bind_class(m);
  // x of any shape. `axis` keeps one scale per index, `blocks` are lengths by axis.
  const auto by_axes = [&](const char* name, auto make, const char* about) {
    bind_function(
        m, name,
        [make](const Tensor& x, const std::vector<int>& axis, const modelopt::BlockLengths& blocks) {
          return make(x, Axes(axis), blocks);
        },
        about, arg("x"), arg("axis") = std::vector<int>{}, arg("blocks") = modelopt::BlockLengths{});
  };
  by_axes("int8_qtensor", modelopt::int8_qtensor,
          "Packs x as INT8 codes with a scale for each index of the axes `axis`, or for each block.");
  by_axes("fp8_qtensor", modelopt::fp8_qtensor,
          "Packs x as E4M3 codes with a scale for each index of the axes `axis`, or for each block.");
  // INT4 and MXFP4 have blocks of a chosen size along the last axis.
  bind_function(m, "int4_qtensor", modelopt::int4_qtensor,
                "Packs the flattened x as INT4 in blocks, two codes per byte, high nibble first.", arg("x"),
                arg("block_size") = 32);
  bind_function(m, "mxfp4_qtensor", modelopt::mxfp4_qtensor,
                "Packs x as MXFP4: E2M1 codes with power-of-two scales of blocks.", arg("x"),
                arg("block_size") = 32);
  bind_function(m, "mxfp8_qtensor", modelopt::mxfp8_qtensor,
                "Packs x as MXFP8: E4M3 codes with power-of-two scales of blocks of 32.", arg("x"));
  bind_function(m, "nvfp4_qtensor", modelopt::nvfp4_qtensor,
                "Packs x as NVFP4: E2M1 codes with E4M3 scales of blocks.", arg("x"), arg("scale2") = none(),
                arg("block_size") = 16);
  bind_function(m, "nf4_qtensor", modelopt::nf4_qtensor,
                "Packs the flattened x as NF4 in blocks, whose scales are quantized in blocks too.", arg("x"),
                arg("block_size"), arg("scale_block_size"));
}

}  // namespace fq::python
