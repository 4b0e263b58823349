#include "fakequant/core/backend/cuda/codes/block_loads.cuh"
#include "fakequant/core/backend/cuda/codes/group_codes.cuh"
#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/detail/quantizer_checks.h"

namespace fq::cuda {
namespace {

using fq::detail::QuantizeCall;

BlockMap block_map(const QuantizedTensor& x) {
  return fq::detail::BlockMap::of(x.shape(), x.grid.granularity.block_shape(x.shape()), x.layout());
}

/// Returns whether there is one scale, or one scale per index of one axis.
bool along_axis(const QuantizedTensor& x) {
  const auto& by = x.grid.granularity;
  return by.is_per_tensor() || by.single_axis(x.codes.rank()) >= 0;
}

/// Returns whether `along_axis` holds, or each block has consecutive elements, as in NVFP4 and MX.
bool has_row_blocks(const QuantizedTensor& x) { return along_axis(x) || block_map(x).consecutive(); }

template <class Blocks>
Blocks make_blocks(const QuantizedTensor& x) {
  const auto& by = x.grid.granularity;
  const int axis = by.single_axis(x.codes.rank());
  if constexpr (std::is_same_v<Blocks, AxisBlocks>) {
    // Consecutive blocks are the blocks of one axis that has all elements.
    if (along_axis(x)) return AxisBlocks::of(x.shape(), x.layout(), axis);
    const std::int64_t count = x.codes.numel(), length = block_map(x).last.length;
    return fq::detail::AxisBlocks{count, length, count / length};
  } else {
    if (!along_axis(x) || axis < 0) return block_map(x);
    // One axis as a map of three axes: a list of tensors has either all AxisBlocks or all BlockMap.
    const AxisView view = fq::detail::memory_view(x.shape(), x.layout(), axis);
    return fq::detail::BlockMap::of({view.outer, view.size, view.inner}, {view.outer, 1, view.inner});
  }
}

template <class Blocks>
struct Quantize {
  const float *x, *scale, *amax;
  GroupCodes out;
  Blocks blocks;

  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size], scales[group_size], ranges[group_size], values[group_size] = {};
    load_group(x + first, count, v);
    const auto place = blocks.place(first);
    // The usual case: the eight elements share a scale, whose reciprocal is computed once.
    if constexpr (std::is_same_v<Blocks, AxisBlocks>)
      if (const std::int64_t block = shared_block(blocks, place, count); block >= 0)
        return out.put(first, count, v, out.row(scale[block], amax[block]));
    load_blocks(blocks, place, scale, count, scales);
    load_blocks(blocks, place, amax, count, ranges);
    unsigned bits = 0;
    bool nan = false;
    for (int j = 0; j < group_size; ++j) {
      if (j >= count) continue;
      const auto row = grid_row(out.format.grid, scales[j], ranges[j]);
      const bool bad = scalar::is_nan_(v[j]);
      nan = nan || bad;
      values[j] = bad ? 0.0f : out.format.code(v[j], row);
      bits |= static_cast<unsigned>(scalar::mask_closed(v[j], row.mask_lower, row.amax)) << j;
    }
    store_codes(out.codes, out.format, first, count, values);
    if (out.factors != nullptr) out.store_factors(first, count, values);
    if (out.mask != nullptr) out.mask[first / 8] = static_cast<std::uint8_t>(bits);
    if (nan) raise(out.alarm);
  }
};

/// Returns per-block numbers in the order of `make_blocks`. Copies that are needed for this order are stored
/// in `kept`.
const float* block_numbers(const Tensor& numbers, const QuantizedTensor& x, std::vector<Tensor>& kept) {
  if (along_axis(x)) return device_data<float>(numbers);
  kept.push_back(fq::detail::numbers_in_memory(numbers, x.grid.granularity, x.shape(), x.layout()));
  return device_data<float>(kept.back());
}

template <class Blocks>
Quantize<Blocks> quantize_body(const QuantizeCall& call, std::vector<Tensor>& kept) {
  auto& out = call.out;
  return {device_data<float>(call.x), block_numbers(out.grid.scale, out, kept),
          block_numbers(out.grid.amax, out, kept), GroupCodes::of(out, call.nan_text),
          make_blocks<Blocks>(out)};
}

/// Quantizes several tensors, one after another.
template <class Blocks>
struct QuantizeMany {
  struct Item {
    std::int64_t first;  ///< first group, counted over all tensors
    loops::OfGroups<Quantize<Blocks>> groups;
  };
  const Item* items;
  int count;

  FQ_HD void operator()(std::int64_t g) const {
    // Binary search: the group belongs to the last tensor that begins at or before it.
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (items[middle].first <= g ? low : high) = middle;
    }
    items[low].groups(g - items[low].first);
  }
};

template <class Out, class Blocks>
struct Decode {
  const void* codes;
  const float* scale;  // null: no scale
  Out* out;
  CodeFormat format;
  Blocks blocks;

  FQ_HD void operator()(std::int64_t first, int count) const {
    float values[group_size], scales[group_size];
    load_codes(codes, format, first, count, values);
    if (scale != nullptr) {
      load_blocks(blocks, blocks.place(first), scale, count, scales);
      for (int j = 0; j < group_size; ++j) values[j] = scalar::dequantize_code(values[j], scales[j]);
    }
    store_converted(out + first, count, values);
  }
};

// Masked gradients become +0. Words are moved as bits, so one kernel serves all float types of a size.
template <class Word>
struct ApplyMask {
  const Word* dy;
  const std::uint8_t* mask;
  Word* out;
  FQ_HD void operator()(std::int64_t first, int count) const {
    Word v[group_size];
    load_group(dy + first, count, v);
    apply_bits(mask, first, count, v);
    store_group(out + first, count, v);
  }
};

template <class Out, class Blocks>
void decode_blocks(const QuantizedTensor& x, const float* scale, Tensor& out) {
  launch_groups(out.device(), out.numel(),
                Decode<Out, Blocks>{device_data<void>(x.codes), scale, mutable_device_data<Out>(out),
                                    CodeFormat::of(x.grid.format), make_blocks<Blocks>(x)});
}

template <class Out>
void decode_typed(const QuantizedTensor& x, const float* scale, Tensor& out) {
  if (x.codes.numel() == 0) return;
  has_row_blocks(x) ? decode_blocks<Out, AxisBlocks>(x, scale, out)
                    : decode_blocks<Out, BlockMap>(x, scale, out);
}

template <class Blocks>
void quantize_one(const QuantizeCall& call) {
  std::vector<Tensor> kept;
  launch_groups(call.x.device(), call.x.numel(), quantize_body<Blocks>(call, kept));
}

template <class Blocks>
void quantize_many(std::span<const QuantizeCall> calls) {
  using Many = QuantizeMany<Blocks>;
  std::vector<typename Many::Item> items;
  std::vector<Tensor> kept;
  std::int64_t groups = 0;
  for (const auto& call : calls) {
    if (call.x.numel() == 0) continue;
    items.push_back({groups, {quantize_body<Blocks>(call, kept), call.x.numel()}});
    groups += (call.x.numel() + group_size - 1) / group_size;
  }
  if (items.empty()) return;
  const Device device = calls.front().x.device();
  // All weights of a step in one launch: single launches cost more than the work of small tensors.
  const Storage table = constant(items.data(), items.size() * sizeof items[0], device);
  launch_each(
      device, groups,
      Many{reinterpret_cast<const typename Many::Item*>(table.data()), static_cast<int>(items.size())});
}

template <class Word>
void mask_words(const Tensor& dy, const Tensor& mask, Tensor& out) {
  launch_groups(out.device(), out.numel(),
                ApplyMask<Word>{device_data<Word>(dy), device_data<std::uint8_t>(mask),
                                mutable_device_data<Word>(out)});
}

}  // namespace

void decode(const QuantizedTensor& x, Tensor& out) {
  if (out.dtype() == DType::bf16) return decode_typed<bfloat16>(x, nullptr, out);
  decode_typed<float>(x, nullptr, out);
}

void dequantize(const QuantizedTensor& x, Tensor& out) {
  std::vector<Tensor> kept;
  const float* scale = block_numbers(x.grid.scale, x, kept);
  out.dtype() == DType::bf16 ? decode_typed<bfloat16>(x, scale, out) : decode_typed<float>(x, scale, out);
}

void quantize(std::span<const QuantizeCall> calls) {
  // The kernel for columns is not used in lists: it has its own shape of launch.
  if (calls.size() > 1) {
    const bool axes = std::ranges::all_of(
        calls, [](const auto& call) { return call.x.numel() == 0 || has_row_blocks(call.out); });
    return axes ? quantize_many<AxisBlocks>(calls) : quantize_many<BlockMap>(calls);
  }
  for (const auto& call : calls) {
    // Nor does it make factors.
    if (call.x.numel() == 0 || (!call.out.factors.defined() && quantize_code_columns(call))) continue;
    has_row_blocks(call.out) ? quantize_one<AxisBlocks>(call) : quantize_one<BlockMap>(call);
  }
}

void apply_mask(const Tensor& dy, const Tensor& mask, Tensor& out) {
  switch (bit_width(dy.dtype())) {
    case 16:
      return mask_words<std::uint16_t>(dy, mask, out);
    case 32:
      return mask_words<std::uint32_t>(dy, mask, out);
    default:
      return mask_words<std::uint64_t>(dy, mask, out);
  }
}

}  // namespace fq::cuda
