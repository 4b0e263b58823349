#include "fakequant/core/reference/clipped.h"

#include "fakequant/core/check.h"
#include "fakequant/core/cpu/channels.h"
#include "fakequant/core/formulas.h"
#include "fakequant/core/reference/float_blocks.h"
#include "fakequant/core/tape.h"

namespace fq::detail {
Shape broadcast_block(const Shape& x, const Shape& other, const char* function) {
  FQ_CHECK(other.size() <= x.size(), function, "{} has more axes than the input {}", to_string(other),
           to_string(x));
  Shape block = x;
  for (std::size_t a = x.size(), k = other.size(); k-- > 0;) {
    --a;
    FQ_CHECK(other[k] == 1 || other[k] == x[a], function,
             "{} does not broadcast to the input {}: axis {} must have 1 or {}", to_string(other),
             to_string(x), a, x[a]);
    if (other[k] != 1) block[a] = 1;
  }
  for (auto& length : block) length = std::max<std::int64_t>(length, 1);
  return block;
}

Tensor compared_with(const Tensor& x, const Tensor& bound) {
  const bool rounded = bound.rank() == 0 && bit_width(x.dtype()) == 16;
  return rounded ? bound.to(x.dtype()).to(DType::f32) : bound.to(DType::f32);
}

Tensor within_amax(const Tensor& x, const Tensor& amax, const char* function) {
  const Shape block = broadcast_block(x.shape(), amax.shape(), function);
  const Tensor bound = compared_with(x, amax);
  return mask_where(x, block,
                    [a = bound.data<float>()](float v, auto j) { return scalar::modelopt_mask(v, a[j]); });
}

Variable record_clipped(std::string_view op, const Variable& x, Tensor y, Tensor mask) {
  return record(op, std::move(y), {x}, [mask, dtype = x.tensor().dtype()](const Tensor& dy) {
    if (!mask.defined()) return std::vector<Tensor>{dy.to(dtype)};
    return std::vector<Tensor>{apply_mask(dy.to(DType::f32), mask).to(dtype)};
  });
}

}  // namespace fq::detail
