#include "functions.h"

#include <fmt/format.h>

#include "fakequant/core/error.h"

namespace fq::golden {

Functions all_functions() {
  Functions functions;
  add_modelopt(functions);
  add_modelopt_blocks(functions);
  add_modelopt_qtensor(functions);
  add_pytorch_quantization(functions);
  add_onnx(functions);
  add_calibrators(functions);
  add_quantizer(functions);
  add_torch(functions);
  add_torchao_affine(functions);
  add_torchao_float(functions);
  add_observers(functions);
  add_engines(functions);
  return functions;
}

Outputs with_gradient(const Case& c, const std::function<Variable(const Variable&)>& f) {
  const Tensor grad_y = c.tensor("grad_y");
  const Variable x(c.tensor("x"), grad_y.defined());
  const Variable y = f(x);
  Outputs out{{"y", y.tensor()}};
  if (!grad_y.defined()) return out;
  y.backward(grad_y);
  out["grad_x"] = x.grad();
  return out;
}

DType dtype_named(const std::string& name) {
  static const std::map<std::string, DType> names{{"float32", DType::f32},
                                                  {"float64", DType::f64},
                                                  {"float16", DType::f16},
                                                  {"bfloat16", DType::bf16},
                                                  {"int8", DType::i8},
                                                  {"uint8", DType::u8},
                                                  {"int16", DType::i16},
                                                  {"uint16", DType::u16},
                                                  {"int32", DType::i32},
                                                  {"int64", DType::i64},
                                                  {"int2", DType::i2},
                                                  {"uint2", DType::u2},
                                                  {"int4", DType::i4},
                                                  {"uint4", DType::u4},
                                                  {"float8", DType::f8_e4m3},
                                                  {"float8_e4m3fn", DType::f8_e4m3},
                                                  {"float8_e5m2", DType::f8_e5m2},
                                                  {"float8_e8m0fnu", DType::f8_e8m0},
                                                  {"float4_e2m1", DType::f4_e2m1}};
  const auto found = names.find(name.starts_with("torch.") ? name.substr(6) : name);
  if (found == names.end())
    throw ArgumentError(fmt::format("[golden] the dtype '{}' is not one of ours", name));
  return found->second;
}

}  // namespace fq::golden
