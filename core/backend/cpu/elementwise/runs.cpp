#include <algorithm>
#include <cstddef>
#include <cstring>

#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/parallel_for.h"

namespace fq::cpu {
namespace {

/// Copies `count` bits, from and to any bit: whole bytes of the target at once, its ends one by one.
void copy_bits(const std::byte* in, std::int64_t from, std::byte* out, std::int64_t to, std::int64_t count) {
  const auto one_by_one = [&](std::int64_t bits) {
    for (; bits > 0; --bits, ++from, ++to, --count) {
      const auto bit = in[from / 8] >> (from % 8) & std::byte{1};
      out[to / 8] = (out[to / 8] & ~(std::byte{1} << (to % 8))) | (bit << (to % 8));
    }
  };
  one_by_one(std::min((8 - to % 8) % 8, count));
  for (const auto shift = static_cast<int>(from % 8); count >= 8; from += 8, to += 8, count -= 8) {
    const auto low = in[from / 8] >> shift;
    out[to / 8] = shift == 0 ? low : low | in[from / 8 + 1] << (8 - shift);
  }
  one_by_one(count);
}

}  // namespace

void copy_runs(const detail::StridedBits& c, const void* from, void* to, Device) {
  const auto* in = static_cast<const std::byte*>(from);
  auto* out = static_cast<std::byte*>(to);
  if (!c.whole_bytes()) {
    for (std::int64_t r = 0; r < c.runs; ++r)
      copy_bits(in, r * c.step_x + c.source, out, r * c.step_y + c.target, c.count);
    return;
  }
  detail::parallel_for(c.runs, c.runs * c.count > 8 << 18, [&](std::int64_t r) {
    std::memcpy(out + (r * c.step_y + c.target) / 8, in + (r * c.step_x + c.source) / 8,
                static_cast<std::size_t>(c.count / 8));
  });
}

}  // namespace fq::cpu
