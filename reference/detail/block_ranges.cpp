#include "fakequant/reference/detail/block_ranges.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/detail/float_blocks.h"
#include "fakequant/reference/torchao.h"

namespace fq::detail {
namespace {

// Maps a float to an integer in the same order, so that minima and maxima are exact and vectorise. NaN lies
// beyond the infinities.
std::int32_t ordered(float v) {
  const auto word = std::bit_cast<std::int32_t>(v);
  return word ^ ((word >> 31) & 0x7fffffff);
}
float order_value(std::int32_t order) { return std::bit_cast<float>(order ^ ((order >> 31) & 0x7fffffff)); }

constexpr std::int32_t infinity = 0x7f800000, most = std::numeric_limits<std::int32_t>::max();

// Running minimum and maximum as ordered integers. Initially the set is empty.
struct Orders {
  std::int32_t lower = most, upper = -most - 1;

  void add(const float* v, std::int64_t count) {
    // Local copies keep the loop free of stores to memory.
    std::int32_t lo = lower, hi = upper;
    for (std::int64_t i = 0; i < count; ++i) {
      lo = std::min(lo, ordered(v[i]));
      hi = std::max(hi, ordered(v[i]));
    }
    lower = lo;
    upper = hi;
  }
  [[nodiscard]] bool has_nan() const { return upper > infinity || lower < -infinity - 1; }
};

std::int64_t count_blocks(const Shape& shape, const Shape& block) {
  std::int64_t count = 1;
  for (std::size_t a = 0; a < shape.size(); ++a) count *= (shape[a] + block[a] - 1) / block[a];
  return count;
}

}  // namespace

Ranges block_ranges(const Tensor& x, const Shape& block, const char* function) {
  FQ_CHECK(x.numel() > 0, function, "the input {} has no element to take a range from", to_string(x.shape()));
  std::vector<Orders> orders(static_cast<std::size_t>(count_blocks(x.shape(), block)));
  const Tensor rows = x.to(Device::cpu()).to(Layout::row_major);
  visit_chunks(rows, block, [&](const float* v, auto, auto length, auto j, auto step) {
    Orders* at = orders.data() + j;
    if (step == 0) return at->add(v, length);
    for (std::int64_t k = 0; k < length; ++k) at[k].add(v + k, 1);
  });
  Ranges out;
  for (const Orders& o : orders) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    out.lower.push_back(o.has_nan() ? nan : order_value(o.lower));
    out.upper.push_back(o.has_nan() ? nan : order_value(o.upper));
  }
  return out;
}

}  // namespace fq::detail

namespace fq::torchao {

Reduction reduction(const Shape& input, const Shape& block_size, const char* function) {
  Reduction r{block_size, {}, scale_shape(input, block_size, function)};
  for (std::size_t a = 0; a < input.size(); ++a)
    // torchao reduces an axis that its block covers, and splits the others; axes of size 1 stay in the
    // result.
    if (block_size[a] == 1 || block_size[a] != input[a]) r.result.push_back(r.kept[a]);
  // No axis to reduce: torch then reduces all of them.
  if (std::ranges::all_of(block_size, [](std::int64_t length) { return length == 1; })) {
    r.block = input;
    r.result.clear();
  }
  return r;
}

void check_kept(const Reduction& r, const char* function) {
  FQ_CHECK(numel(r.kept) == numel(r.result), function,
           "a block of all ones is reduced to one result, keepdim needs {}: choose another block",
           to_string(r.kept));
}

}  // namespace fq::torchao
