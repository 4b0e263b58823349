#include "fakequant/reference/torchao.h"

#include <map>

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "fakequant/core/error.h"
#include "graded.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;
using Block = std::vector<std::int64_t>;
using Bound = std::optional<std::int64_t>;

/// Returns the integer type of "torch.int8", torch.uint4, "int8". torchao names types that torch tensors need
/// not have, for example torch.uint4.
torchao::IntegerType integer_type(nb::handle value) {
  const auto name = nb::cast<std::string>(nb::str(value));
  return torchao::IntegerType::named(name.starts_with("torch.") ? name.substr(6) : name);
}

Shape to_shape(const Block& block) { return Shape(block); }

// `scale` and `zero_point` have one element per block of `block_size`, in any shape.
void bind_codes(nb::module_& m) {
  m.def(
      "quantize_affine",
      [](nb::object x, const Block& block_size, nb::object scale, nb::object zero_point,
         nb::object output_dtype, Bound quant_min, Bound quant_max, const std::string& domain) {
        const Call call{"quantize_affine", x};
        const Tensor input = call.tensor(x, "x"), s = call.tensor(scale, "scale"),
                     z = call.tensor(zero_point, "zero_point");
        const auto type = integer_type(output_dtype);
        // INT, FLOAT or NONE: whether the zero point is a code, a value or absent (golden/README.md,
        // torchao_affine.h5).
        const auto way = torchao::zero_point_domain(domain);
        return call.give(unlocked([&] {
          return torchao::quantize_affine(input, to_shape(block_size), s, z, type, {quant_min, quant_max},
                                          way);
        }));
      },
      arg("x"), arg("block_size"), arg("scale"), arg("zero_point").none(), arg("output_dtype"),
      arg("quant_min") = none(), arg("quant_max") = none(), arg("zero_point_domain") = "INT",
      "Returns the codes of blocks with one scale each.");
  m.def(
      "dequantize_affine",
      [](nb::object codes, const Block& block_size, nb::object scale, nb::object zero_point,
         nb::object input_dtype, Bound quant_min, Bound quant_max, const std::string& domain,
         nb::object output_dtype) {
        const Call call{"dequantize_affine", codes};
        const Tensor c = call.tensor(codes, "codes"), s = call.tensor(scale, "scale"),
                     z = call.tensor(zero_point, "zero_point");
        const auto type = integer_type(input_dtype);
        const auto way = torchao::zero_point_domain(domain);
        const DType out = call.dtype(output_dtype, "output_dtype", DType::f32);
        return call.give(unlocked([&] {
          return torchao::dequantize_affine(c, to_shape(block_size), s, z, type, {quant_min, quant_max}, way,
                                            out);
        }));
      },
      arg("codes"), arg("block_size"), arg("scale"), arg("zero_point").none(), arg("input_dtype"),
      arg("quant_min") = none(), arg("quant_max") = none(), arg("zero_point_domain") = "INT",
      arg("output_dtype") = "float32", "Returns the values of codes of quantize_affine.");
}

void bind_fake(nb::module_& m) {
  m.def(
      "fake_quantize_affine",
      [](nb::object x, const Block& block_size, nb::object scale, nb::object zero_point,
         nb::object quant_dtype, Bound quant_min, Bound quant_max, const std::string& domain,
         nb::object grad_y) {
        const Call call{"fake_quantize_affine", x};
        const bool wants_gradient = !grad_y.is_none();
        // torchao learns the scale, so it has a gradient.
        const Variable s(call.tensor(scale, "scale"), wants_gradient);
        const Tensor z = call.tensor(zero_point, "zero_point");
        const auto type = integer_type(quant_dtype);
        const auto way = torchao::zero_point_domain(domain);
        const nb::object out = graded(call, x, grad_y, [&](const Variable& v) {
          return torchao::fake_quantize_affine(v, to_shape(block_size), s, z, type, {quant_min, quant_max},
                                               way);
        });
        return wants_gradient ? nb::make_tuple(out[0], out[1], call.give(s.grad())) : out;
      },
      arg("x"), arg("block_size"), arg("scale"), arg("zero_point").none(), arg("quant_dtype"),
      arg("quant_min") = none(), arg("quant_max") = none(), arg("zero_point_domain") = "INT",
      arg("grad_y") = none(),
      "Returns the values of the codes of x. With grad_y it returns (y, grad_x, grad_scale).");
  m.def(
      "fake_quantize_affine_cachemask",
      [](nb::object x, const Block& block_size, nb::object scale, nb::object zero_point,
         nb::object quant_dtype, Bound quant_min, Bound quant_max, const std::string& domain) {
        const Call call{"fake_quantize_affine_cachemask", x};
        const Tensor input = call.tensor(x, "x"), s = call.tensor(scale, "scale"),
                     z = call.tensor(zero_point, "zero_point");
        const auto type = integer_type(quant_dtype);
        const auto way = torchao::zero_point_domain(domain);
        // The mask is a bit per element, which `give` turns into bools.
        const auto [y, mask] = unlocked([&] {
          return torchao::fake_quantize_affine_cachemask(input, to_shape(block_size), s, z, type,
                                                         {quant_min, quant_max}, way);
        });
        return nb::make_tuple(call.give(y), call.give(mask));
      },
      arg("x"), arg("block_size"), arg("scale"), arg("zero_point").none(), arg("quant_dtype"),
      arg("quant_min") = none(), arg("quant_max") = none(), arg("zero_point_domain") = "INT",
      "Returns (y, mask). The mask is true for codes that were not clipped.");
}

// Three functions of torchao with the same arguments.
using Choose = torchao::QParams (*)(const Tensor&, torchao::MappingType, const Shape&, torchao::IntegerType,
                                    const torchao::QParamsOptions&);

void bind_choice(nb::module_& m, const char* name, Choose choose, const char* about) {
  m.def(
      name,
      [name, choose](nb::object x, const std::string& mapping_type, const Block& block_size,
                     nb::object target_dtype, Bound quant_min, Bound quant_max, std::optional<double> eps,
                     // keepdim keeps axes of length 1 in the results.
                     nb::object scale_dtype, nb::object zero_point_dtype, bool keepdim) {
        const Call call{name, x};
        const Tensor input = call.tensor(x, "x");
        const auto mapping = torchao::mapping_type(mapping_type);
        const auto type = integer_type(target_dtype);
        const torchao::QParamsOptions options{{quant_min, quant_max},
                                              eps,
                                              call.dtype(scale_dtype, "scale_dtype"),
                                              call.dtype(zero_point_dtype, "zero_point_dtype"),
                                              keepdim};
        const auto found =
            unlocked([&] { return choose(input, mapping, to_shape(block_size), type, options); });
        return nb::make_tuple(call.give(found.scale), call.give(found.zero_point));
      },
      arg("x"), arg("mapping_type"), arg("block_size"), arg("target_dtype"), arg("quant_min") = none(),
      arg("quant_max") = none(), arg("eps") = none(), arg("scale_dtype") = none(),
      arg("zero_point_dtype") = none(), arg("keepdim") = false, about);
}

// The unnamed argument is block_size: torchao accepts it here and ignores it.
void bind_choice_of_ranges(nb::module_& m) {
  m.def(
      "choose_qparams_affine_with_min_max",
      [](nb::object min_val, nb::object max_val, const std::string& mapping_type, const Block&,
         nb::object target_dtype, Bound quant_min, Bound quant_max, std::optional<double> eps,
         nb::object scale_dtype, nb::object zero_point_dtype) {
        const Call call{"choose_qparams_affine_with_min_max", min_val};
        const Tensor low = call.tensor(min_val, "min_val"), high = call.tensor(max_val, "max_val");
        const auto mapping = torchao::mapping_type(mapping_type);
        const auto type = integer_type(target_dtype);
        const torchao::QParamsOptions options{{quant_min, quant_max},
                                              eps,
                                              call.dtype(scale_dtype, "scale_dtype"),
                                              call.dtype(zero_point_dtype, "zero_point_dtype")};
        const auto found = unlocked(
            [&] { return torchao::choose_qparams_affine_with_min_max(low, high, mapping, type, options); });
        return nb::make_tuple(call.give(found.scale), call.give(found.zero_point));
      },
      arg("min_val"), arg("max_val"), arg("mapping_type"), arg("block_size"), arg("target_dtype"),
      arg("quant_min") = none(), arg("quant_max") = none(), arg("eps") = none(), arg("scale_dtype") = none(),
      arg("zero_point_dtype") = none(),
      "Returns (scale, zero_point) of observed ranges, in their shape. As in torchao, block_size has no "
      "effect.");
}

}  // namespace

void bind_torchao(nb::module_& module) {
  nb::module_ m = module.def_submodule("torchao", "Functions of torchao, with the same bits on a CPU.");
  bind_codes(m);
  bind_fake(m);
  bind_choice(m, "choose_qparams_affine", torchao::choose_qparams_affine,
              "Returns (scale, zero_point) of each block.");
  bind_choice(m, "choose_qparams_affine_tinygemm", torchao::choose_qparams_affine_tinygemm,
              "Returns (scale, zero_point). The zero point is a float, the value of the middle code.");
  bind_choice(m, "choose_qparams_affine_dont_preserve_zero",
              torchao::choose_qparams_affine_dont_preserve_zero,
              "Returns (scale, zero_point) of ranges that need not contain zero.");
  bind_choice_of_ranges(m);
}

namespace {

using nb::arg, nb::none;

/// Returns the format of "float8_e4m3fn", torch.float8_e5m2, "fp6_e2m3", "float4_e2m1fn_x2".
/// torch has no 6-bit floats. torchao names them by strings.
FloatFormat parse_element_format(nb::handle value) {
  static const std::map<std::string, FloatFormat> formats{{"float8_e4m3fn", {4, 3}},
                                                          {"float8_e5m2", {5, 2}},
                                                          {"fp6_e2m3", {2, 3}},
                                                          {"fp6_e3m2", {3, 2}},
                                                          {"float4_e2m1fn_x2", {2, 1}}};
  auto text = nb::cast<std::string>(nb::str(value));
  if (text.starts_with("torch.")) text = text.substr(6);
  const auto found = formats.find(text);
  if (found == formats.end())
    throw ArgumentError(
        fmt::format("[to_mx] elem_dtype is '{}': float8_e4m3fn, float8_e5m2, fp6_e2m3, fp6_e3m2 and "
                    "float4_e2m1fn_x2 are allowed",
                    text));
  return found->second;
}

void bind_float8(nb::module_& m) {
  m.def(
      "choose_scale_float8",
      [](nb::object x, const std::vector<std::int64_t>& block_size, nb::object float8_dtype,
         nb::object scale_dtype, std::optional<double> lower, std::optional<double> upper) {
        const Call call{"choose_scale_float8", x};
        const Tensor input = call.tensor(x, "x");
        const DType type = call.dtype(float8_dtype, "float8_dtype", DType::f8_e4m3);
        const torchao::Float8ScaleOptions options{call.dtype(scale_dtype, "scale_dtype", DType::f32), lower,
                                                  upper};
        return call.give(
            unlocked([&] { return torchao::choose_scale_float8(input, Shape(block_size), type, options); }));
      },
      arg("x"), arg("block_size"), arg("float8_dtype") = "float8_e4m3fn", arg("scale_dtype") = "float32",
      arg("hp_value_lb") = none(), arg("hp_value_ub") = none(),
      "Returns the scale of each block, amax / max.");
  m.def(
      "quantize_affine_float8",
      [](nb::object x, nb::object scale, nb::object float8_dtype, nb::object grad_y) {
        const Call call{"quantize_affine_float8", x};
        const Tensor s = call.tensor(scale, "scale");
        const DType type = call.dtype(float8_dtype, "float8_dtype", DType::f8_e4m3);
        return graded(call, x, grad_y,
                      [&](const Variable& v) { return torchao::quantize_affine_float8(v, s, type); });
      },
      arg("x"), arg("scale"), arg("float8_dtype") = "float8_e4m3fn", arg("grad_y") = none(),
      "Returns the codes of clamp(x / scale, -max, max). With grad_y, the gradient of the codes, it returns "
      "(codes, grad_x).");
  m.def(
      "dequantize_affine_float8",
      [](nb::object codes, nb::object scale, nb::object output_dtype) {
        // Codes may be a fakequant.Tensor, so the scale decides the array type of the result.
        const Call call{"dequantize_affine_float8", scale};
        const Tensor c = call.tensor(codes, "codes"), s = call.tensor(scale, "scale");
        const DType type = call.dtype(output_dtype, "output_dtype", DType::f32);
        return call.give(unlocked([&] { return torchao::dequantize_affine_float8(c, s, type); }));
      },
      arg("codes"), arg("scale"), arg("output_dtype") = "float32", "Returns codes * scale.");
}

// Codes of fewer than 8 bits are one per byte, except for FP4 of to_mx and nvfp4_quantize: two per byte, low
// nibble first.
void bind_small_floats(nb::module_& m) {
  m.def(
      "cast_floatx",
      [](nb::object x, int ebits, int mbits) {
        const Call call{"cast_floatx", x};
        const Tensor input = call.tensor(x, "x");
        return call.give(unlocked([&] { return torchao::cast_floatx(input, ebits, mbits); }));
      },
      arg("x"), arg("ebits"), arg("mbits"),
      "Returns codes, one per byte, of signed floats without infinities and NaN.");
  m.def(
      "decode_floatx",
      [](nb::object codes, int ebits, int mbits) {
        const Call call{"decode_floatx", codes};
        const Tensor input = call.tensor(codes, "codes");
        return call.give(unlocked([&] { return torchao::decode_floatx(input, ebits, mbits); }));
      },
      arg("codes"), arg("ebits"), arg("mbits"), "Returns the values of codes of cast_floatx.");
  m.def(
      "to_mx",
      [](nb::object x, nb::object elem_dtype, std::int64_t block_size, const std::string& scaling_mode) {
        const Call call{"to_mx", x};
        const Tensor input = call.tensor(x, "x");
        const FloatFormat element = parse_element_format(elem_dtype);
        const auto mode = torchao::scaling_mode(scaling_mode);
        const auto mx = unlocked([&] { return torchao::to_mx(input, element, block_size, mode); });
        // Scales are E8M0: a byte with the exponent + 127, 255 for NaN.
        return nb::make_tuple(call.give(mx.scale), call.give(mx.codes));
      },
      arg("x"), arg("elem_dtype"), arg("block_size") = 32, arg("scaling_mode") = "FLOOR",
      "Returns (scale, codes) of an OCP MX format.");
  m.def(
      "to_dtype",
      [](nb::object scale, nb::object codes, nb::object elem_dtype, std::int64_t block_size,
         nb::object target_dtype) {
        const Call call{"to_dtype"};
        const torchao::ScaledCodes mx{call.tensor(scale, "scale"), call.tensor(codes, "codes")};
        const FloatFormat element = parse_element_format(elem_dtype);
        const DType type = call.dtype(target_dtype, "target_dtype", DType::f32);
        return call.give(unlocked([&] { return torchao::to_dtype(mx, element, block_size, type); }));
      },
      arg("scale"), arg("codes"), arg("elem_dtype"), arg("block_size") = 32, arg("target_dtype") = "float32",
      "Returns the values of the scales and codes of to_mx.");
  m.def(
      "nvfp4_quantize",
      [](nb::object x, nb::object per_tensor_scale) {
        const Call call{"nvfp4_quantize", x};
        const Tensor input = call.tensor(x, "x"), global = call.tensor(per_tensor_scale, "per_tensor_scale");
        const auto out = unlocked([&] { return torchao::nvfp4_quantize(input, global); });
        return nb::make_tuple(call.give(out.scale), call.give(out.codes));
      },
      arg("x"), arg("per_tensor_scale") = none(), "Returns (scale, codes) of NVFP4 in blocks of 16.");
}

}  // namespace

void bind_torchao_float(nb::module_& module) {
  nb::module_ m = nb::borrow<nb::module_>(module.attr("torchao"));
  bind_float8(m);
  bind_small_floats(m);
}

}  // namespace fq::python
