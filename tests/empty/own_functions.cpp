#include "own_functions.h"

#include <span>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"
#include "fakequant/core/detail/packed_scales.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/ops/detail/updates.h"
#include "fakequant/core/quantized.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/reference/torchao.h"

namespace fq::empty {
namespace {

using golden::Case;
using golden::Outputs;

const Shape kShape{4, 6};

Case make_case(const std::string& function, std::map<std::string, Tensor> inputs) {
  Case out;
  out.name = function;
  out.texts["function"] = function;
  for (auto& [name, tensor] : inputs) out.inputs[name].tensor = std::move(tensor);
  return out;
}

Tensor values(const Shape& shape, DType dtype = DType::f32) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < numel(shape); ++i) out.push_back(0.25f * static_cast<float>(i % 13 + 1));
  return Tensor::from(out, shape).to(dtype);
}

QuantDescriptor make_descriptor(const Case& c) { return QuantDescriptor::from_json(c.text("descriptor")); }

/// The codes of x with ranges that are given, and everything that reads codes.
Outputs quantize_codes(const Case& c) {
  const QuantDescriptor d = make_descriptor(c);
  const Tensor x = c.tensor("x");
  const auto grid =
      Grid::from_amax(d.format(), d.granularity(x.rank()), c.tensor("amax").to(Device::cpu()), "q");
  const QuantizedTensor codes = quantize(x, grid.to(x.device()));
  (void)code_values(codes);
  (void)apply_mask(c.tensor("grad_y"), codes.mask);
  (void)unpack_scales(pack_scales(grid), d.format(), d.granularity(x.rank()));
  return {{"y", dequantize(codes)}};
}

/// A quantizer that calibrates itself, or has been given an amax; gradients, weights, export, state.
Outputs quantizer(const Case& c) {
  const QuantDescriptor d = make_descriptor(c);
  const Tensor x = c.tensor("x");
  TensorQuantizer q(d, c.text("arithmetic") == "reference" ? Arithmetic::reference : Arithmetic::deployed);
  q.to(x.device());
  if (c.tensor("amax").defined()) q.set_amax(c.tensor("amax"));
  if (d.needs_amax() && !q.amax().defined()) {
    q.observer().collect(x);
    q.load_calibrated_amax();
  }
  const Variable input(x, true);
  const Variable y = q(input);
  if (y.requires_grad() && !y.is_leaf()) y.backward(Tensor::full(y.shape(), 1.0, DType::f32, x.device()));
  (void)q.weight(input).tensor();
  (void)q.quantized_values(x);
  (void)export_amax(q, x.shape());
  StateDict state;
  q.save(state, "q");
  TensorQuantizer().load(state, "q");
  return {{"y", y.tensor()}};
}

Outputs calibrator(const Case& c) {
  const auto axes = c.integers("axis");
  CalibratorOptions options;
  options.axis = std::vector<int>(axes.begin(), axes.end());
  if (c.text("method") == "scale_sweep") options.num_bits = {2, 1};
  const auto made = make_calibrator(c.text("method"), options),
             other = make_calibrator(c.text("method"), options);
  for (int pass = 0; pass < made->passes(); ++pass) {
    if (pass > 0) made->next_pass();
    for (const Tensor& batch : c.batches()) made->collect(batch);
  }
  other->load_state(made->state_dict());
  return {{"amax", other->compute_amax({.start_bin = 2})}};
}

Outputs bias_calibrator(const Case& c) {
  const auto axes = c.integers("axis");
  BiasCalibrator made(c.flag("max_min", false) ? BiasMethod::max_min : BiasMethod::mean,
                      std::vector<int>(axes.begin(), axes.end()));
  for (const Tensor& batch : c.batches()) made.collect(batch);
  return {{"bias", made.compute_bias()}};
}

Outputs packed_codes(const Case& c) {
  return {{"y", unpack_codes(pack_codes(c.tensor("codes"), golden::dtype_named(c.text("dtype"))))}};
}

Outputs run_min_max(const Case& c) {
  const auto [scale, zero_point] = torchao::choose_qparams_affine_with_min_max(
      c.tensor("min_val"), c.tensor("max_val"), torchao::mapping_type(c.text("mapping_type")),
      torchao::IntegerType::named("int8"));
  return {{"scale", scale}, {"zero_point", zero_point}};
}

Outputs octav(const Case& c) {
  const auto axes = c.integers("axis");
  return {{"amax", octav_amax(c.tensor("x"), std::vector<int>(axes.begin(), axes.end()), 4, false)}};
}

Outputs updates(const Case& c) {
  const auto parameter = [&] { return c.tensor("x").clone(); };
  const Tensor grad = c.tensor("grad_y");
  ops::sgd_step(std::vector<ops::SgdUpdate>{{parameter(), grad, parameter(), 0.1, 0.01}}, {0.9, true});
  ops::adam_step(std::vector<ops::AdamUpdate>{{parameter(), grad, parameter(), parameter(), 1, 0.1, 0.01}},
                 {});
  std::vector<Tensor> averages{parameter()}, others{parameter()};
  ops::move_towards(averages, std::vector<Tensor>{grad}, 0.5);
  ops::swap_contents(averages, others);
  return {{"norm", Tensor::scalar(ops::norm(averages))}, {"y", averages[0]}};
}

std::vector<Case> quantizer_cases() {
  std::vector<Case> out;
  const auto add = [&](const std::string& bits, const std::string& rest, const Shape& scales) {
    Case c = make_case("quantize_codes",
                       {{"x", values(kShape)}, {"grad_y", values(kShape)}, {"amax", values(scales)}});
    c.texts["descriptor"] = "{\"num_bits\": " + bits + rest + "}";
    if (rest.find("dynamic") == std::string::npos) out.push_back(c);
    c.texts["function"] = c.name = "quantizer";
    for (const char* arithmetic : {"deployed", "reference"}) {
      c.texts["arithmetic"] = arithmetic;
      out.push_back(c);
      out.push_back(c);
      out.back().inputs.erase("amax");
    }
  };
  for (const char* bits : {"8", "4", "[4, 3]"}) {
    add(bits, "", {});
    add(bits, ", \"axis\": 0", {4});
    add(bits, ", \"axis\": [0, 1]", {24});
    add(bits, ", \"block_sizes\": {\"-1\": 2}", {12});
    add(bits, ", \"block_sizes\": {\"-1\": 2, \"-2\": 2}", {6});
    add(bits, ", \"dynamic\": true", {});
    add(bits, ", \"dynamic\": true, \"axis\": 0", {4});
  }
  for (const char* bits : {"[2, 1]", "[4, 3]"})
    for (const char* scales : {"[4, 3]", "[8, 0]"})
      add(bits,
          std::string(", \"block_sizes\": {\"-1\": 16, \"type\": \"dynamic\", \"scale_bits\": ") + scales +
              "}",
          {});
  add("[2, 1]", ", \"block_sizes\": {\"-1\": 2, \"scale_bits\": [4, 3]}", {12});
  return out;
}

std::vector<Case> calibrator_cases() {
  std::vector<Case> out;
  for (const auto method : QuantDescriptor::calib_methods())
    for (const bool by_axis : {false, true}) {
      out.push_back(make_case("calibrator", {{"batch_000", values(kShape)}, {"batch_001", values(kShape)}}));
      out.back().texts["method"] = std::string(method);
      if (by_axis) out.back().numbers["axis"] = {1.0};
    }
  return out;
}

}  // namespace

std::vector<std::string> nested_calls() {
  return {"compute_fp4_scales",
          "decode_floatx",
          "to_dtype",
          "tensorrt::dequantize",
          "ggml::pack_q4_0",
          "ggml::pack_q8_0",
          "ggml::unpack_q4_0",
          "ggml::unpack_q8_0",
          "onnx::dynamic_quantize_linear",
          "onnx::dynamic_quantize_matmul",
          "onnx::gqa_int8_kv",
          "onnx::matmulnbits_level4"};
}

void add_own(golden::Functions& functions) {
  functions["quantize_codes"] = quantize_codes;
  functions["quantizer"] = quantizer;
  functions["calibrator"] = calibrator;
  functions["bias_calibrator"] = bias_calibrator;
  functions["packed_codes"] = packed_codes;
  functions["choose_qparams_affine_with_min_max"] = run_min_max;
  functions["octav_amax"] = octav;
  functions["updates"] = updates;
}

std::vector<Case> own_cases() {
  std::vector<Case> out = quantizer_cases();
  for (Case& c : calibrator_cases()) out.push_back(std::move(c));
  for (const bool by_axis : {false, true}) {
    out.push_back(
        make_case("bias_calibrator", {{"batch_000", values(kShape)}, {"batch_001", values(kShape)}}));
    out.push_back(make_case("octav_amax", {{"x", values(kShape)}}));
    if (!by_axis) continue;
    out[out.size() - 2].numbers["axis"] = out.back().numbers["axis"] = {0.0};
  }
  for (const char* dtype : {"int2", "uint2", "int4", "uint4", "float4_e2m1"}) {
    out.push_back(make_case("packed_codes", {{"codes", values(kShape, DType::u8)}}));
    out.back().texts["dtype"] = dtype;
  }
  for (const char* mapping : {"SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC"}) {
    out.push_back(make_case("choose_qparams_affine_with_min_max",
                            {{"min_val", values(kShape)}, {"max_val", values(kShape)}}));
    out.back().texts["mapping_type"] = mapping;
  }
  for (const DType dtype : {DType::f32, DType::f64})
    out.push_back(make_case("updates", {{"x", values(kShape, dtype)}, {"grad_y", values(kShape, dtype)}}));
  return out;
}

}  // namespace fq::empty
