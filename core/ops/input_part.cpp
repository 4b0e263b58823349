#include "fakequant/core/ops/input_part.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/ops/detail/move.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::ops {
namespace {

constexpr std::string_view kInputPart = "input_part";

/// What is recorded, and its floats: integers as f32.
detail::Floats numbers(const Variable& x) {
  const auto* tensor = std::get_if<Tensor>(&x.value());
  const bool whole = tensor != nullptr && !is_floating(tensor->dtype()) &&
                     !is_storage_only(tensor->dtype()) && tensor->dtype() != DType::u1;
  return whole ? detail::Floats{x, tensor->to(DType::f32)} : detail::floats(x, kInputPart);
}

/// Whether the part lies within rows of so many elements; its sizes may be any.
bool fits(const InputPart& part, std::int64_t row) {
  if (part.begin < 0 || part.begin >= row) return false;
  std::int64_t left = row - part.begin;
  for (const auto size : part.shape) left = size >= 1 ? left / size : 0;
  return left >= 1;
}

void check(const Variable& x, const InputPart& part) {
  FQ_CHECK(x.defined() && x.rank() == 2, kInputPart, "the input is {}: give rows [N, K]",
           x.defined() ? to_string(x.shape()) : "undefined");
  FQ_CHECK(fits(part, x.dim(1)), kInputPart, "{} from element {} on is not within rows of {}",
           to_string(part.shape), part.begin, x.dim(1));
  FQ_CHECK(std::ranges::count(input_part_types(), part.type) == 1, kInputPart,
           "the type '{}': it is one of {}", part.type, fmt::join(input_part_types(), ", "));
}

}  // namespace

const std::vector<std::string>& input_part_types() {
  static const std::vector<std::string> types{"f32", "f64", "f16", "i8", "u8", "i16", "i32", "i64", "bool"};
  return types;
}

Variable input_part(const Variable& x, const InputPart& part) {
  check(x, part);
  const std::int64_t end = part.begin + numel(part.shape);
  Shape shape{x.dim(0)};
  shape.insert(shape.end(), part.shape.begin(), part.shape.end());
  auto attributes = detail::traced([&] {
    return Attributes{{"begin", part.begin}, {"shape", part.shape}, {"name", part.name}, {"type", part.type}};
  });
  const auto read = numbers(x);
  const CutMove cut{1, part.begin, end};
  const auto backward = [cut, from = x.shape(), own = Shape{x.dim(0), end - part.begin}](const Tensor& dy) {
    return std::vector<Tensor>{moved_back(moved_back(dy, ReshapeMove{own}, own), cut, from)};
  };
  return detail::record(kInputPart, moved(moved(read.tensor, cut), ReshapeMove{shape}), {read.variable},
                        backward, std::move(attributes));
}

}  // namespace fq::ops
