#include "functions.h"

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/reference/detail/torch_types.h"

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
  if (const auto found = detail::dtype_of_torch(name)) return *found;
  throw ArgumentError(fmt::format("[golden] the dtype '{}' is not one of ours", name));
}

}  // namespace fq::golden
