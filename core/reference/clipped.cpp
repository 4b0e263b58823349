#include "fakequant/core/reference/clipped.h"

#include "fakequant/core/check.h"
#include "fakequant/core/cpu/channels.h"
#include "fakequant/core/formulas.h"
#include "fakequant/core/reference/float_blocks.h"
#include "fakequant/core/tape.h"

namespace fq::detail {
namespace {

/// Bits [begin, begin + count), which are 0, from predicate(k).
template <class F>
void set_bits(std::uint8_t* bits, std::int64_t begin, std::int64_t count, F&& predicate) {
  std::int64_t k = 0;
  for (; k < count && (begin + k) % 8 != 0; ++k) cpu::set_bit(bits, begin + k, predicate(k));
  for (; k + 8 <= count; k += 8) {
    unsigned byte = 0;
    for (unsigned b = 0; b < 8; ++b) byte |= static_cast<unsigned>(predicate(k + b)) << b;
    bits[(begin + k) / 8] = static_cast<std::uint8_t>(byte);
  }
  for (; k < count; ++k) cpu::set_bit(bits, begin + k, predicate(k));
}

}  // namespace

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

Tensor within_amax(const Tensor& x, const Tensor& amax, const char* function) {
  const Shape block = broadcast_block(x.shape(), amax.shape(), function);
  Tensor mask = Tensor::zeros(x.shape(), DType::u1, x.device());
  if (x.device().is_meta()) return mask;
  const bool rounded = amax.rank() == 0 && bit_width(x.dtype()) == 16;
  const Tensor bound = rounded ? amax.to(x.dtype()).to(DType::f32) : amax;
  const auto* a = bound.data<float>();
  auto* bits = static_cast<std::uint8_t*>(mask.mutable_raw());
  for_chunks(x.to(Layout::row_major), block, [&](const float* v, auto begin, auto count, auto j, auto step) {
    set_bits(bits, begin, count, [&](auto k) { return scalar::modelopt_mask(v[k], a[j + k * step]); });
  });
  return mask;
}

Variable record_clipped(std::string_view op, const Variable& x, Tensor y, Tensor mask) {
  return record(op, std::move(y), {x}, [mask, dtype = x.tensor().dtype()](const Tensor& dy) {
    if (!mask.defined()) return std::vector<Tensor>{dy.to(dtype)};
    return std::vector<Tensor>{apply_mask(dy.to(DType::f32), mask).to(dtype)};
  });
}

}  // namespace fq::detail
