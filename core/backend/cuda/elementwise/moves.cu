#include <algorithm>
#include <span>

#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/strides.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

/// Transposes in tiles: reads and writes use whole lines of memory.
template <class Word>
struct Transpose {
  static constexpr int phases = 2, side = 32, lines = block_threads / side;
  struct Shared {
    // The extra column puts the elements of a column into different banks of shared memory.
    Word tile[side][side + 1];
  };
  const Word* x;
  Word* y;
  std::int64_t rows, columns, tiles_down, tiles_across;

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const std::int64_t image = t.block / (tiles_down * tiles_across),
                       tile = t.block % (tiles_down * tiles_across);
    const std::int64_t r0 = tile / tiles_across * side, c0 = tile % tiles_across * side;
    const Word* from = x + image * rows * columns;
    Word* to = y + image * rows * columns;
    const int i = t.thread % side;
    for (int j = t.thread / side; j < side; j += lines) {
      if (Phase == 0 && r0 + j < rows && c0 + i < columns)
        shared.tile[j][i] = from[(r0 + j) * columns + c0 + i];
      if (Phase == 1 && c0 + j < columns && r0 + i < rows) to[(c0 + j) * rows + r0 + i] = shared.tile[i][j];
    }
  }
};

template <class Word>
void transpose_words(const void* x, void* y, std::int64_t images, std::int64_t rows, std::int64_t columns,
                     Device device) {
  constexpr std::int64_t side = Transpose<Word>::side;
  const std::int64_t down = (rows + side - 1) / side, across = (columns + side - 1) / side;
  launch_blocks(
      device, images * down * across,
      Transpose<Word>{static_cast<const Word*>(x), static_cast<Word*>(y), rows, columns, down, across});
}

void transpose(const void* x, void* y, int bits, std::int64_t images, std::int64_t rows, std::int64_t columns,
               Device device) {
  visit_word(bits / 8, [&]<class Word>(Word) { transpose_words<Word>(x, y, images, rows, columns, device); });
}

/// Computes one byte of the transposed bits of images, [rows][columns] to [columns][rows].
struct TransposeBits {
  const std::uint8_t* x;
  std::uint8_t* y;
  std::int64_t rows, columns, bits;
  FQ_HD void operator()(std::int64_t byte) const {
    const std::int64_t size = rows * columns;
    unsigned out = 0;
    for (int j = 0; j < 8; ++j) {
      const std::int64_t i = byte * 8 + j, image = i / size, at = i % size;
      if (i < bits)
        out |= static_cast<unsigned>(get_bit(x, image * size + at % rows * columns + at / rows)) << j;
    }
    y[byte] = static_cast<std::uint8_t>(out);
  }
};

template <class Word>
struct Gather {
  const Word* x;
  Word* y;
  Strides strides;
  FQ_HD void operator()(std::int64_t first, int count) const {
    Word v[group_size];
    load_strided(x, strides, 0, first, count, v);
    store_group(y + first, count, v);
  }
};

template <class Word>
void gather(const Tensor& x, const cpu::Walk& walk, Tensor& y) {
  launch_groups(x.device(), x.numel(),
                Gather<Word>{device_data<Word>(x), mutable_device_data<Word>(y), Strides::of(walk)});
}

/// Gathers the bits of a mask, byte by byte of y.
struct GatherBits {
  const std::uint8_t* x;
  std::uint8_t* y;
  Strides strides;
  FQ_HD void operator()(std::int64_t first, int count) const {
    unsigned bits = 0;
    for (int j = 0; j < count; ++j) bits |= (get_bit(x, strides.offset(0, first + j)) ? 1u : 0u) << j;
    y[first / 8] = static_cast<std::uint8_t>(bits);
  }
};

void gather_bits(const Tensor& x, const cpu::Walk& walk, Tensor& y) {
  launch_groups(
      x.device(), x.numel(),
      GatherBits{device_data<std::uint8_t>(x), mutable_device_data<std::uint8_t>(y), Strides::of(walk)});
}

/// Transposes consecutive matrices if both of their axes are contiguous. Returns false otherwise.
bool try_transpose(const Tensor& x, const cpu::Walk& walk, Tensor& y) {
  const auto& sizes = walk.sizes();
  const auto& steps = walk.strides(0);
  if (sizes.size() < 2 || sizes.size() > 3) return false;
  const std::size_t last = sizes.size() - 1;
  const std::int64_t columns = sizes[last - 1], rows = sizes[last];
  // y is [columns, rows]: its axis before the last is contiguous in x, and its last axis steps over the rows
  // of x.
  if (steps[last - 1] != 1 || steps[last] != columns || (last == 2 && steps[0] != rows * columns))
    return false;
  transpose(device_data<void>(x), mutable_device_data<void>(y), bit_width(x.dtype()),
            last == 2 ? sizes[0] : 1, rows, columns, x.device());
  return true;
}

using fq::detail::RunCopy;
using fq::detail::StridedBits;

struct alignas(16) Bytes16 {
  std::uint64_t words[2];
};

/// Copies whole words of a few tensors, one after another.
template <class Word>
struct CopyWords {
  struct Item {
    std::int64_t end;  // words of the items up to this one
    const Word* in;
    Word* out;
    std::int64_t count, step_x, step_y;
  };
  static constexpr int most = 4;
  Item items[most];

  FQ_HD void operator()(std::int64_t i) const {
    int own = 0;
    while (i >= items[own].end) ++own;
    const Item& item = items[own];
    const std::int64_t word = i - (own == 0 ? 0 : items[own - 1].end), run = quotient(word, item.count),
                       at = word - run * item.count;
    item.out[run * item.step_y + at] = item.in[run * item.step_x + at];
  }
};

/// Copies bits: one byte of the target, beginning with the byte of its first bit.
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
    // The usual case: all eight bits of the byte are in one run.
    if (first >= 0) {
      const std::int64_t run = quotient(first, copy.step_y), at = first - run * copy.step_y;
      if (run < copy.runs && at + 8 <= copy.count) {
        out[byte] = static_cast<std::uint8_t>(whole(copy.source + run * copy.step_x + at));
        return;
      }
    }
    // Ends of runs: bits outside of them keep their values.
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

const std::byte* begin(const RunCopy& c) { return static_cast<const std::byte*>(c.in) + c.bits.source / 8; }
std::byte* target(const RunCopy& c) { return static_cast<std::byte*>(c.out) + c.bits.target / 8; }

/// Returns whether the copy can move words of `size` bytes.
bool fits_words(const RunCopy& copy, std::int64_t size) {
  const StridedBits& c = copy.bits;
  const auto addresses =
      reinterpret_cast<std::uintptr_t>(begin(copy)) | reinterpret_cast<std::uintptr_t>(target(copy));
  // Every run must begin on a word, in x and in y.
  const bool steps = c.runs == 1 || (c.step_x | c.step_y) % (8 * size) == 0;
  return c.whole_bytes() && c.count % (8 * size) == 0 && steps &&
         addresses % static_cast<std::uintptr_t>(size) == 0;
}

template <class Word>
bool try_words(std::span<const RunCopy> copies, Device device) {
  constexpr std::int64_t size = sizeof(Word), bits = 8 * size;
  if (!std::ranges::all_of(copies, [](const RunCopy& copy) { return fits_words(copy, size); })) return false;
  CopyWords<Word> body{};
  std::int64_t words = 0;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const StridedBits& c = copies[i].bits;
    words += c.runs * (c.count / bits);
    body.items[i] = {words,
                     reinterpret_cast<const Word*>(begin(copies[i])),
                     reinterpret_cast<Word*>(target(copies[i])),
                     c.count / bits,
                     c.step_x / bits,
                     c.step_y / bits};
  }
  launch_each(device, words, body);
  return true;
}

/// Copies at most CopyWords::most tensors: in one launch if all of them have whole words.
void copy_group(std::span<const RunCopy> copies, Device device) {
  // From fastest to slowest: 16, 4 or 1 bytes at once, then single bits.
  if (try_words<Bytes16>(copies, device) || try_words<std::uint32_t>(copies, device) ||
      try_words<std::uint8_t>(copies, device))
    return;
  if (copies.size() > 1) {
    for (std::size_t i = 0; i < copies.size(); ++i) copy_group(copies.subspan(i, 1), device);
    return;
  }
  const StridedBits& c = copies[0].bits;
  const std::int64_t end = c.target + (c.runs - 1) * c.step_y + c.count;
  launch_each(
      device, (end + 7) / 8 - c.target / 8,
      CopyBits{c, static_cast<const std::uint8_t*>(copies[0].in), static_cast<std::uint8_t*>(copies[0].out)});
}

}  // namespace

void permute(const Tensor& x, const std::vector<int>& axes, Tensor& y) {
  if (y.numel() == 0) return;
  const auto walk = cpu::permute_walk(cpu::placed(x), axes, y.shape());
  if (bit_width(x.dtype()) == 1) return gather_bits(x, walk, y);
  if (try_transpose(x, walk, y)) return;
  visit_word(bit_width(x.dtype()) / 8, [&]<class Word>(Word) { gather<Word>(x, walk, y); });
}

void relayout(const Tensor& in, Tensor& out) {
  if (in.numel() == 0) return;
  const auto& s = in.shape();
  const bool to_last = out.layout() == Layout::channels_last;
  const std::int64_t pixels = s[2] * s[3], rows = to_last ? s[1] : pixels, columns = to_last ? pixels : s[1];
  if (bit_width(in.dtype()) > 1)
    return transpose(device_data<void>(in), mutable_device_data<void>(out), bit_width(in.dtype()), s[0], rows,
                     columns, in.device());
  launch_each(in.device(), out.nbytes(),
              TransposeBits{device_data<std::uint8_t>(in), mutable_device_data<std::uint8_t>(out), rows,
                            columns, in.numel()});
}

void copy_runs(std::span<const RunCopy> copies, Device device) {
  for (const auto& copy : copies) {
    note_read(copy.in, copy.bits.runs * copy.bits.count / 8);
    note_written(copy.out, copy.bits.runs * copy.bits.count / 8);
  }
  constexpr std::size_t most = CopyWords<std::uint8_t>::most;
  for (std::size_t i = 0; i < copies.size(); i += most)
    copy_group(copies.subspan(i, std::min(most, copies.size() - i)), device);
}

}  // namespace fq::cuda
