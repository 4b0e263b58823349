#include "fakequant/reference/modelopt.h"
#include "functions.h"

namespace fq::golden {

void add_modelopt(Functions& functions) {
  functions["fake_tensor_quant"] = [](const Case& c) {
    return with_gradient(c, [&](const Variable& x) {
      return fake_tensor_quant(x, c.tensor("amax"), c.tensor("bias"), c.integer("num_bits", 8),
                               c.flag("unsigned", false), c.flag("narrow_range", true),
                               c.flag("pass_through_bwd", false));
    });
  };
  functions["int_cast_ste"] = [](const Case& c) {
    return with_gradient(c, [&](const Variable& x) {
      return modelopt::int_cast_ste(x, c.integer("num_bits", 8), c.flag("unsigned", false),
                                    c.flag("narrow_range", true));
    });
  };
  functions["scaled_e4m3"] = [](const Case& c) {
    return with_gradient(c, [&](const Variable& x) {
      return scaled_e4m3(x, c.tensor("amax"), c.tensor("bias"), c.integer("E", 4), c.integer("M", 3),
                         c.flag("pass_through_bwd", false));
    });
  };
}

}  // namespace fq::golden
