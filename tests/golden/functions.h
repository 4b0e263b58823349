#pragma once

/// The functions that the runner calls for the names in golden files.

#include <functional>
#include <map>
#include <string>

#include "case.h"
#include "fakequant/core/variable.h"

namespace fq::golden {

/// Results by the names that the files give them under out/. One that a case does not store is not compared,
/// one that it stores must be here.
using Outputs = std::map<std::string, Tensor>;
using Function = std::function<Outputs(const Case&)>;
using Functions = std::map<std::string, Function>;

/// One of these a file `<family>_functions.cpp`; `all_functions` calls them.
void add_modelopt(Functions& functions);
void add_modelopt_blocks(Functions& functions);
void add_modelopt_qtensor(Functions& functions);
void add_pytorch_quantization(Functions& functions);
void add_onnx(Functions& functions);
void add_calibrators(Functions& functions);
void add_quantizer(Functions& functions);
void add_torch(Functions& functions);
void add_torchao_affine(Functions& functions);
void add_torchao_float(Functions& functions);
void add_observers(Functions& functions);
void add_engines(Functions& functions);
[[nodiscard]] Functions all_functions();

/// y = f(x) as "y" and, where the case has a grad_y, the gradient of its x as "grad_x".
[[nodiscard]] Outputs with_gradient(const Case& c, const std::function<Variable(const Variable&)>& f);
/// The DType that the files name: "int8", "float16", "float8_e4m3fn", "torch.bfloat16" ..
[[nodiscard]] DType dtype_named(const std::string& name);

}  // namespace fq::golden
