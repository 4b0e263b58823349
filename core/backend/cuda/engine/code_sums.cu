#include "fakequant/core/backend/cuda/engine/algorithms.h"
#include "fakequant/core/backend/cuda/engine/exact_products.h"
#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/numerics/detail/philox.h"

namespace fq::cuda {
namespace {

// bf16 and wider floats represent 8-bit codes exactly.
template <class Code, class Value>
struct Decode {
  const Code* codes;
  Value* values;
  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size];
    load_converted(codes + first, count, v);
    store_converted(values + first, count, v);
  }
};

// Phase 0: each thread adds every 256th code. Phase 1: thread 0 adds the parts. Integers have no order.
/// Computes one row per block.
struct ShiftCorrections {
  static constexpr int phases = 2;
  struct Shared {
    std::int32_t sums[block_threads];
  };
  const std::int8_t* codes;
  std::int64_t length;
  std::int32_t* corrections;

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    if (Phase == 0) {
      std::int32_t sum = 0;
      for (std::int64_t i = t.thread; i < length; i += block_threads) sum += codes[t.block * length + i];
      shared.sums[t.thread] = sum;
    } else if (t.thread == 0) {
      std::int32_t sum = 0;
      for (const std::int32_t part : shared.sums) sum += part;
      corrections[t.block] = 128 * sum;
    }
  }
};

// padded: [rows, groups, padded outputs], sums: [rows, groups, outputs].
struct FinishSums {
  PaddedSums from;
  Divisor outputs, groups;
  const std::int32_t* corrections;
  std::int32_t* sums;
  FQ_HD void operator()(std::int64_t i) const {
    std::int64_t row = i;
    const std::int64_t output = outputs.take_remainder(row);
    std::int64_t rest = row;
    const std::int64_t group = groups.take_remainder(rest);
    const std::int32_t correction =
        corrections != nullptr ? corrections[group * from.padded_outputs + output] : 0;
    sums[i] = from.padded[row * from.padded_outputs + output] + correction;
  }
};

struct AddPart {
  const float* part;
  bool first;
  std::int32_t* sums;
  FQ_HD void operator()(std::int64_t i) const {
    // The conversion is exact: parts are whole numbers of at most 2^24.
    sums[i] = (first ? 0 : sums[i]) + static_cast<std::int32_t>(part[i]);
  }
};

/// Writes numbers of random sign and significand, with magnitudes from 1/8 to 2.
template <class T>
struct RandomFactors {
  std::uint32_t key;
  T* out;
  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size];
    for (int half = 0; half < 2; ++half) {
      const auto words =
          fq::detail::philox_words({static_cast<std::uint32_t>(first / 4 + half), 0, 0, 0}, {key, 0});
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t word = words[static_cast<std::size_t>(j)], exponent = 127 - word % 4;
        v[4 * half + j] = std::bit_cast<float>((word & 0x807FFFFCu) | exponent << 23);
      }
    }
    store_converted(out + first, count, v);
  }
};

/// Sets `differ` to 1 if an element of a and b differs.
struct FindDifference {
  const std::uint32_t *a, *b;
  std::int32_t* differ;
  FQ_HD void operator()(std::int64_t first, int count) const {
    std::uint32_t left[group_size], right[group_size];
    load_group(a + first, count, left);
    load_group(b + first, count, right);
    for (int j = 0; j < group_size; ++j)
      if (left[j] != right[j]) *differ = 1;  // all threads write the same
  }
};

template <class Code>
void decode(const void* codes, std::int64_t count, DType dtype, void* values, Device device) {
  const auto* from = static_cast<const Code*>(codes);
  note_read(codes, count);
  note_written(values, count * bit_width(dtype) / 8);
  const auto run = [&]<class Value>(Value) {
    launch_groups(device, count, Decode<Code, Value>{from, static_cast<Value*>(values)});
  };
  if (dtype == DType::bf16) return run(bfloat16{});
  dtype == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace

void decode_codes(const fq::detail::Codes& codes, std::int64_t count, DType dtype, void* values,
                  Device device) {
  codes.dtype == DType::u8 ? decode<std::uint8_t>(codes.data, count, dtype, values, device)
                           : decode<std::int8_t>(codes.data, count, dtype, values, device);
}

void shift_corrections(const std::int8_t* codes, std::int64_t rows, std::int64_t length,
                       std::int32_t* corrections, Device device) {
  note_read(codes, rows * length);
  note_written(corrections, rows * 4);
  launch_blocks(device, rows, ShiftCorrections{codes, length, corrections});
}

void finish_sums(const PaddedSums& from, const std::int32_t* corrections, std::int32_t* sums, Device device) {
  // The product has already written the final sums.
  if (from.padded == sums && corrections == nullptr) return;
  const std::int64_t count = from.rows * from.groups * from.outputs;
  note_read(from.padded, count * 4);
  note_written(sums, count * 4);
  launch_each(device, count, FinishSums{from, from.outputs, from.groups, corrections, sums});
}

void add_part(const float* part, std::int64_t count, bool first, std::int32_t* sums, Device device) {
  note_read(part, count * 4);
  if (!first) note_read(sums, count * 4);
  note_written(sums, count * 4);
  launch_each(device, count, AddPart{part, first, sums});
}

void fill_factors(Tensor& out, std::uint32_t key) {
  const Device device = out.device();
  if (out.dtype() == DType::bf16)
    launch_groups(device, out.numel(), RandomFactors<bfloat16>{key, mutable_device_data<bfloat16>(out)});
  else
    launch_groups(device, out.numel(), RandomFactors<float>{key, mutable_device_data<float>(out)});
}

void find_difference(const Tensor& a, const Tensor& b, Tensor& differ) {
  launch_groups(a.device(), a.numel(),
                FindDifference{device_data<std::uint32_t>(a), device_data<std::uint32_t>(b),
                               mutable_device_data<std::int32_t>(differ)});
}

}  // namespace fq::cuda
