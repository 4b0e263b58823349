#include "fakequant/core/ops/engines/engine_gelu.h"

#include "fakequant/core/ops/detail/elementwise.h"

namespace fq::ops {

Variable ggml_gelu(const Variable& x, bool approximate_tanh) {
  auto attributes = detail::traced([] {
    return Attributes{{"approximate", std::string("tanh")}, {"engine", std::string("ggml")}};
  });
  return detail::apply_function("gelu", x, detail::GgmlGelu{approximate_tanh}, std::move(attributes));
}

}  // namespace fq::ops
