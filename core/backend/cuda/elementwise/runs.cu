#include "fakequant/core/backend/cuda/elementwise/runs.h"
#include "fakequant/core/backend/cuda/loops/bits.cuh"
#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"

namespace fq::cuda {
namespace {

using fq::detail::StridedBits;

struct alignas(16) Bytes16 {
  std::uint64_t words[2];
};

/// All numbers of words.
template <class Word>
struct CopyWords {
  const Word* in;
  Word* out;
  std::int64_t count, step_x, step_y;
  FQ_HD void operator()(std::int64_t i) const {
    const std::int64_t run = quotient(i, count), at = i - run * count;
    out[run * step_y + at] = in[run * step_x + at];
  }
};

/// A byte of the target, from the byte of its first bit on.
struct CopyBits {
  StridedBits copy;
  const std::uint8_t* in;
  std::uint8_t* out;

  [[nodiscard]] FQ_HD unsigned whole(std::int64_t from) const {
    const std::int64_t byte = from >> 3;
    const auto shift = static_cast<unsigned>(from & 7);
    return shift == 0 ? in[byte] : in[byte] >> shift | in[byte + 1] << (8 - shift);
  }
  FQ_HD void operator()(std::int64_t i) const {
    const std::int64_t byte = copy.target / 8 + i, first = byte * 8 - copy.target;
    if (first >= 0) {
      const std::int64_t run = quotient(first, copy.step_y), at = first - run * copy.step_y;
      if (run < copy.runs && at + 8 <= copy.count) {
        out[byte] = static_cast<std::uint8_t>(whole(copy.source + run * copy.step_x + at));
        return;
      }
    }
    unsigned bits = out[byte];
    for (int j = 0; j < 8; ++j) {
      if (first + j < 0) continue;
      const std::int64_t run = quotient(first + j, copy.step_y), at = first + j - run * copy.step_y;
      if (run >= copy.runs || at >= copy.count) continue;
      const unsigned bit = get_bit(in, copy.source + run * copy.step_x + at) ? 1u : 0u;
      bits = (bits & ~(1u << j)) | bit << j;
    }
    out[byte] = static_cast<std::uint8_t>(bits);
  }
};

template <class Word>
bool try_words(const StridedBits& c, const void* in, void* out, Device device) {
  constexpr std::int64_t size = sizeof(Word), bits = 8 * size;
  const auto* from = static_cast<const std::byte*>(in) + c.source / 8;
  auto* to = static_cast<std::byte*>(out) + c.target / 8;
  const auto addresses = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  const bool steps = c.runs == 1 || (c.step_x | c.step_y) % bits == 0;
  if (!c.whole_bytes() || c.count % bits != 0 || !steps || addresses % size != 0) return false;
  for_items(device, c.runs * (c.count / bits),
            CopyWords<Word>{reinterpret_cast<const Word*>(from), reinterpret_cast<Word*>(to), c.count / bits,
                            c.step_x / bits, c.step_y / bits});
  return true;
}

}  // namespace

void copy_runs(const StridedBits& copy, const void* in, void* out, Device device) {
  if (try_words<Bytes16>(copy, in, out, device) || try_words<std::uint32_t>(copy, in, out, device) ||
      try_words<std::uint8_t>(copy, in, out, device))
    return;
  const std::int64_t end = copy.target + (copy.runs - 1) * copy.step_y + copy.count;
  for_items(device, (end + 7) / 8 - copy.target / 8,
            CopyBits{copy, static_cast<const std::uint8_t*>(in), static_cast<std::uint8_t*>(out)});
}

}  // namespace fq::cuda
