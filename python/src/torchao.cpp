#include "fakequant/reference/torchao.h"

#include <map>

#include <fmt/format.h>

#include "bindings.h"
#include "fakequant/core/error.h"
#include "typed.h"

namespace fq::python {

template <>
struct Argument<torchao::MappingType> : Named<torchao::MappingType, torchao::mapping_type> {};
/// INT, FLOAT or NONE: whether the zero point is a code, a value or absent (golden/README.md,
/// torchao_affine.h5).
template <>
struct Argument<torchao::ZeroPointDomain> : Named<torchao::ZeroPointDomain, torchao::zero_point_domain> {};
template <>
struct Argument<torchao::ScalingMode> : Named<torchao::ScalingMode, torchao::scaling_mode> {};
/// "torch.int8", torch.uint4, "int8". torchao names types that torch tensors need not have, for example
/// torch.uint4.
template <>
struct Argument<torchao::IntegerType> {
  using Given = nb::object;
  static torchao::IntegerType take(const Call&, nb::handle value, const char*) {
    const auto name = nb::cast<std::string>(nb::str(value));
    return torchao::IntegerType::named(name.starts_with("torch.") ? name.substr(6) : name);
  }
};
/// "float8_e4m3fn", torch.float8_e5m2, "fp6_e2m3", "float4_e2m1fn_x2". torch has no 6-bit floats, which
/// torchao names by strings.
template <>
struct Argument<FloatFormat> {
  using Given = nb::object;
  static FloatFormat take(const Call&, nb::handle value, const char*) {
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
};

namespace {

using nb::arg, nb::none;
using Bound = std::optional<std::int64_t>;
using Type = std::optional<DType>;

// `scale` and `zero_point` have one element per block of `block_size`, in any shape.
void bind_codes(nb::module_& m) {
  bind_function(
      m, "quantize_affine",
      [](const Tensor& x, const Shape& block_size, const Tensor& scale, const Tensor& zero_point,
         torchao::IntegerType type, Bound low, Bound high, torchao::ZeroPointDomain domain) {
        return torchao::quantize_affine(x, block_size, scale, zero_point, type, {low, high}, domain);
      },
      "Returns the codes of blocks with one scale each.", arg("x"), arg("block_size"), arg("scale"),
      arg("zero_point").none(), arg("output_dtype"), arg("quant_min") = none(), arg("quant_max") = none(),
      arg("zero_point_domain") = "INT");
  bind_function(
      m, "dequantize_affine",
      [](const Tensor& codes, const Shape& block_size, const Tensor& scale, const Tensor& zero_point,
         torchao::IntegerType type, Bound low, Bound high, torchao::ZeroPointDomain domain, Type out) {
        return torchao::dequantize_affine(codes, block_size, scale, zero_point, type, {low, high}, domain,
                                          out.value_or(DType::f32));
      },
      "Returns the values of codes of quantize_affine.", arg("codes"), arg("block_size"), arg("scale"),
      arg("zero_point").none(), arg("input_dtype"), arg("quant_min") = none(), arg("quant_max") = none(),
      arg("zero_point_domain") = "INT", arg("output_dtype") = "float32");
}

void bind_fake(nb::module_& m) {
  m.def(
      "fake_quantize_affine",
      [](nb::object x, const std::vector<std::int64_t>& block_size, nb::object scale, nb::object zero_point,
         nb::object quant_dtype, Bound quant_min, Bound quant_max, const std::string& domain,
         nb::object grad_y) {
        const Call call{"fake_quantize_affine", x};
        const bool wants_gradient = !grad_y.is_none();
        // torchao learns the scale, so it has a gradient.
        const Variable s(call.tensor(scale, "scale"), wants_gradient);
        const Tensor z = call.tensor(zero_point, "zero_point");
        const auto type = Argument<torchao::IntegerType>::take(call, quant_dtype, "quant_dtype");
        const auto way = torchao::zero_point_domain(domain);
        const nb::object out = graded(call, x, grad_y, [&](const Variable& v) {
          return torchao::fake_quantize_affine(v, Shape(block_size), s, z, type, {quant_min, quant_max}, way);
        });
        return wants_gradient ? nb::make_tuple(out[0], out[1], call.give(s.grad())) : out;
      },
      arg("x"), arg("block_size"), arg("scale"), arg("zero_point").none(), arg("quant_dtype"),
      arg("quant_min") = none(), arg("quant_max") = none(), arg("zero_point_domain") = "INT",
      arg("grad_y") = none(),
      "Returns the values of the codes of x. With grad_y it returns (y, grad_x, grad_scale).");
  // The mask is a bit per element, which becomes an array of bools.
  bind_function(
      m, "fake_quantize_affine_cachemask",
      [](const Tensor& x, const Shape& block_size, const Tensor& scale, const Tensor& zero_point,
         torchao::IntegerType type, Bound low, Bound high, torchao::ZeroPointDomain domain) {
        const auto [y, mask] = torchao::fake_quantize_affine_cachemask(x, block_size, scale, zero_point, type,
                                                                       {low, high}, domain);
        return std::tuple(y, mask);
      },
      "Returns (y, mask). The mask is true for codes that were not clipped.", arg("x"), arg("block_size"),
      arg("scale"), arg("zero_point").none(), arg("quant_dtype"), arg("quant_min") = none(),
      arg("quant_max") = none(), arg("zero_point_domain") = "INT");
}

// Three functions of torchao with the same arguments.
using Choose = torchao::QParams (*)(const Tensor&, torchao::MappingType, const Shape&, torchao::IntegerType,
                                    const torchao::QParamsOptions&);

std::tuple<Tensor, Tensor> pair_of(const torchao::QParams& found) { return {found.scale, found.zero_point}; }

void bind_choice(nb::module_& m, const char* name, Choose choose, const char* about) {
  bind_function(
      m, name,
      [choose](const Tensor& x, torchao::MappingType mapping, const Shape& block_size,
               torchao::IntegerType type, Bound low, Bound high, std::optional<double> eps, Type scale_dtype,
               // keepdim keeps axes of length 1 in the results.
               Type zero_point_dtype, bool keepdim) {
        return pair_of(
            choose(x, mapping, block_size, type, {{low, high}, eps, scale_dtype, zero_point_dtype, keepdim}));
      },
      about, arg("x"), arg("mapping_type"), arg("block_size"), arg("target_dtype"), arg("quant_min") = none(),
      arg("quant_max") = none(), arg("eps") = none(), arg("scale_dtype") = none(),
      arg("zero_point_dtype") = none(), arg("keepdim") = false);
}

// The unnamed argument is block_size: torchao accepts it here and ignores it.
void bind_choice_of_ranges(nb::module_& m) {
  bind_function(
      m, "choose_qparams_affine_with_min_max",
      [](const Tensor& low_values, const Tensor& high_values, torchao::MappingType mapping, const Shape&,
         torchao::IntegerType type, Bound low, Bound high, std::optional<double> eps, Type scale_dtype,
         Type zero_point_dtype) {
        return pair_of(torchao::choose_qparams_affine_with_min_max(
            low_values, high_values, mapping, type, {{low, high}, eps, scale_dtype, zero_point_dtype}));
      },
      "Returns (scale, zero_point) of observed ranges, in their shape. As in torchao, block_size has no "
      "effect.",
      arg("min_val"), arg("max_val"), arg("mapping_type"), arg("block_size"), arg("target_dtype"),
      arg("quant_min") = none(), arg("quant_max") = none(), arg("eps") = none(), arg("scale_dtype") = none(),
      arg("zero_point_dtype") = none());
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

void bind_float8(nb::module_& m) {
  bind_function(
      m, "choose_scale_float8",
      [](const Tensor& x, const Shape& block_size, Type float8_dtype, Type scale_dtype,
         std::optional<double> lower, std::optional<double> upper) {
        return torchao::choose_scale_float8(x, block_size, float8_dtype.value_or(DType::f8_e4m3),
                                            {scale_dtype.value_or(DType::f32), lower, upper});
      },
      "Returns the scale of each block, amax / max.", arg("x"), arg("block_size"),
      arg("float8_dtype") = "float8_e4m3fn", arg("scale_dtype") = "float32", arg("hp_value_lb") = none(),
      arg("hp_value_ub") = none());
  bind_graded(
      m, "quantize_affine_float8",
      [](const Variable& x, const Tensor& scale, Type float8_dtype) {
        return torchao::quantize_affine_float8(x, scale, float8_dtype.value_or(DType::f8_e4m3));
      },
      "Returns the codes of clamp(x / scale, -max, max). With grad_y, the gradient of the codes, it returns "
      "(codes, grad_x).",
      arg("x"), arg("scale"), arg("float8_dtype") = "float8_e4m3fn");
  m.def(
      "dequantize_affine_float8",
      [](nb::object codes, nb::object scale, nb::object output_dtype) {
        // Codes may be a fakequant.Tensor, so the scale decides the array type of the result.
        const Call call{"dequantize_affine_float8", scale};
        const Tensor c = call.tensor(codes, "codes"), s = call.tensor(scale, "scale");
        const DType type = call.dtype(output_dtype, "output_dtype").value_or(DType::f32);
        return call.give(unlocked([&] { return torchao::dequantize_affine_float8(c, s, type); }));
      },
      arg("codes"), arg("scale"), arg("output_dtype") = "float32", "Returns codes * scale.");
}

// Codes of fewer than 8 bits are one per byte, except for FP4 of to_mx and nvfp4_quantize: two per byte, low
// nibble first.
void bind_small_floats(nb::module_& m) {
  bind_function(m, "cast_floatx", torchao::cast_floatx,
                "Returns codes, one per byte, of signed floats without infinities and NaN.", arg("x"),
                arg("ebits"), arg("mbits"));
  bind_function(m, "decode_floatx", torchao::decode_floatx, "Returns the values of codes of cast_floatx.",
                arg("codes"), arg("ebits"), arg("mbits"));
  // Scales are E8M0: a byte with the exponent + 127, 255 for NaN.
  bind_function(
      m, "to_mx",
      [](const Tensor& x, FloatFormat element, std::int64_t block_size, torchao::ScalingMode mode) {
        const auto mx = torchao::to_mx(x, element, block_size, mode);
        return std::tuple(mx.scale, mx.codes);
      },
      "Returns (scale, codes) of an OCP MX format.", arg("x"), arg("elem_dtype"), arg("block_size") = 32,
      arg("scaling_mode") = "FLOOR");
  m.def(
      "to_dtype",
      [](nb::object scale, nb::object codes, nb::object elem_dtype, std::int64_t block_size,
         nb::object target_dtype) {
        const Call call{"to_dtype"};
        const torchao::ScaledCodes mx{call.tensor(scale, "scale"), call.tensor(codes, "codes")};
        const auto element = Argument<FloatFormat>::take(call, elem_dtype, "elem_dtype");
        const DType type = call.dtype(target_dtype, "target_dtype", DType::f32);
        return call.give(unlocked([&] { return torchao::to_dtype(mx, element, block_size, type); }));
      },
      arg("scale"), arg("codes"), arg("elem_dtype"), arg("block_size") = 32, arg("target_dtype") = "float32",
      "Returns the values of the scales and codes of to_mx.");
  bind_function(
      m, "nvfp4_quantize",
      [](const Tensor& x, const Tensor& per_tensor_scale) {
        const auto out = torchao::nvfp4_quantize(x, per_tensor_scale);
        return std::tuple(out.scale, out.codes);
      },
      "Returns (scale, codes) of NVFP4 in blocks of 16.", arg("x"), arg("per_tensor_scale") = none());
}

}  // namespace

void bind_torchao_float(nb::module_& module) {
  nb::module_ m = nb::borrow<nb::module_>(module.attr("torchao"));
  bind_float8(m);
  bind_small_floats(m);
}

}  // namespace fq::python
