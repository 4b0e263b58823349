#include "fakequant/reference/detail/through_host.h"

#include "fakequant/core/tape.h"

namespace fq::detail {

Variable moved(const Variable& x, Device device) {
  if (!x.defined() || x.device() == device) return x;
  const Variable v = x.as_float();
  return record("to_device", v.tensor().to(device), {v},
                [from = v.device()](const Tensor& dy) { return std::vector<Tensor>{dy.to(from)}; });
}

}  // namespace fq::detail
