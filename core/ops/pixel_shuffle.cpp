#include "fakequant/core/ops/detail/composite.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

Shape checked(const Variable& x, std::int64_t factor, std::string_view op) {
  FQ_CHECK(x.defined() && x.rank() == 4, op, "the input is {}: give [N, C, H, W]",
           x.defined() ? to_string(x.shape()) : "undefined");
  FQ_CHECK(factor >= 1 && factor < (1 << 15), op, "the factor is {}: use 1 or more", factor);
  return x.shape();
}

Attributes factor_of(std::int64_t factor) {
  return detail::traced([&] { return Attributes{{"factor", factor}}; });
}

}  // namespace

Variable pixel_shuffle(const Variable& x, std::int64_t r) {
  const Shape s = checked(x, r, "pixel_shuffle");
  FQ_CHECK(s[1] % (r * r) == 0, "pixel_shuffle", "{} has {} channels: they must be a multiple of {}",
           to_string(s), s[1], r * r);
  return detail::composite("pixel_shuffle", {x}, factor_of(r), [&] {
    const Variable squares = reshape(x, {s[0], s[1] / (r * r), r, r, s[2], s[3]});
    return reshape(transpose(squares, {0, 1, 4, 2, 5, 3}), {s[0], s[1] / (r * r), s[2] * r, s[3] * r});
  });
}

Variable pixel_unshuffle(const Variable& x, std::int64_t r) {
  const Shape s = checked(x, r, "pixel_unshuffle");
  FQ_CHECK(s[2] % r == 0 && s[3] % r == 0, "pixel_unshuffle", "{} is no image of squares of {} pixels",
           to_string(s), r);
  return detail::composite("pixel_unshuffle", {x}, factor_of(r), [&] {
    const Variable squares = reshape(x, {s[0], s[1], s[2] / r, r, s[3] / r, r});
    return reshape(transpose(squares, {0, 1, 3, 5, 2, 4}), {s[0], s[1] * r * r, s[2] / r, s[3] / r});
  });
}

}  // namespace fq::ops
