#include "fakequant/core/backend/cuda/engine/columns.h"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/words.cuh"

namespace fq::cuda {
namespace {

struct WeightShape {
  std::int64_t group_channels, taps, products, group_outputs, row, outputs;

  static WeightShape of(const ColumnShape& s, std::int64_t outputs) {
    return {s.group_channels(), s.conv.kh * s.conv.kw, s.products(), s.group_outputs(), s.row, outputs};
  }
  /// Of the weight of column k of an output, in OIHW order.
  [[nodiscard]] FQ_HD std::int64_t at(std::int64_t group, std::int64_t output, std::int64_t k) const {
    const std::int64_t tap = quotient(k, group_channels), channel = k - tap * group_channels;
    return (group * group_outputs + output) * products + channel * taps + tap;
  }
};

template <class Word>
struct PackWeights {
  WeightShape s;
  const Word* w;
  Word* packed;
  bool transposed;

  FQ_HD void operator()(std::int64_t i) const {
    std::int64_t at = i;
    const std::int64_t inner = take_remainder(at, transposed ? s.outputs : s.row);
    const std::int64_t outer = take_remainder(at, transposed ? s.row : s.outputs);
    const std::int64_t k = transposed ? outer : inner, output = transposed ? inner : outer;
    packed[i] = k < s.products && output < s.group_outputs ? w[s.at(at, output, k)] : Word{};
  }
};

template <class Word>
struct UnpackWeights {
  WeightShape s;
  const Word* packed;
  Word* w;

  FQ_HD void operator()(std::int64_t i) const {
    std::int64_t at = i;
    const std::int64_t k = take_remainder(at, s.products), output = take_remainder(at, s.group_outputs);
    w[s.at(at, output, k)] = packed[i];
  }
};

void pack(const ColumnShape& s, const void* w, int bytes, std::int64_t outputs, bool transposed, void* packed,
          Device device) {
  visit_word(bytes, [&]<class Word>(Word) {
    for_items(device, s.conv.groups * outputs * s.row,
              PackWeights<Word>{WeightShape::of(s, outputs), static_cast<const Word*>(w),
                                static_cast<Word*>(packed), transposed});
  });
}

}  // namespace

void pack_weights(const ColumnShape& s, const void* w, int bytes, std::int64_t outputs, void* packed,
                  Device device) {
  pack(s, w, bytes, outputs, false, packed, device);
}

void pack_weights_transposed(const ColumnShape& s, const void* w, int bytes, std::int64_t outputs,
                             void* packed, Device device) {
  pack(s, w, bytes, outputs, true, packed, device);
}

void unpack_weights(const ColumnShape& s, const void* packed, int bytes, void* w, Device device) {
  visit_word(bytes, [&]<class Word>(Word) {
    for_items(device, s.conv.o * s.products(),
              UnpackWeights<Word>{WeightShape::of(s, s.group_outputs()), static_cast<const Word*>(packed),
                                  static_cast<Word*>(w)});
  });
}

}  // namespace fq::cuda
