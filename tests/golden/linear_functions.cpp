#include "fakequant/core/error.h"
#include "fakequant/core/reference/tensorrt.h"
#include "fakequant/core/reference/tripy.h"
#include "functions.h"

namespace fq::golden {

void add_linear(Functions& functions) {
  functions["tripy_quantize"] = [](const Case& c) -> Outputs {
    return {{"codes", tripy::quantize(c.tensor("x"), c.tensor("scale"), dtype_named(c.text("dtype")),
                                      c.optional_integer("dim"))}};
  };
  functions["tripy_dequantize"] = [](const Case& c) -> Outputs {
    return {{"y", tripy::dequantize(c.tensor("codes"), c.tensor("scale"),
                                    dtype_named(c.text("dtype", "float32")), c.optional_integer("dim"))}};
  };
  functions["tensorrt_quantize"] = [](const Case& c) -> Outputs {
    const int axis = c.integer("axis", 1);
    const Tensor codes =
        tensorrt::quantize(c.tensor("x"), c.tensor("scale"), dtype_named(c.text("to_type", "int8")), axis);
    return {{"codes", codes}, {"y", tensorrt::dequantize(codes, c.tensor("scale"), DType::f32, axis)}};
  };
}

}  // namespace fq::golden
