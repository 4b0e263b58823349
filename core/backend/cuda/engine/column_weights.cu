#include "fakequant/core/backend/cuda/engine/columns.h"
#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"

namespace fq::cuda {
namespace {

struct WeightShape {
  Divisor group_channels, row, outputs;
  std::int64_t taps, products, group_outputs;
  bool computes_dx;

  static WeightShape of(const ColumnShape& s, std::int64_t outputs) {
    return {s.group_channels(), s.row,        outputs, s.conv.kh * s.conv.kw, s.products(),
            s.group_outputs(),  s.computes_dx};
  }
  /// Returns the index of the weight for column k of an output, in OIHW order.
  [[nodiscard]] FQ_HD std::int64_t at(std::int64_t group, std::int64_t output, std::int64_t k) const {
    std::int64_t tap = k;
    const std::int64_t channel = group_channels.take_remainder(tap);
    // The gradient's convolution has inputs and outputs exchanged and taps reversed, but w is in the order of
    // the forward convolution.
    if (computes_dx)
      return ((group * group_channels.value + channel) * group_outputs + output) * taps + (taps - 1 - tap);
    return (group * group_outputs + output) * products + channel * taps + tap;
  }
};

// w: [o, c/groups, kh, kw], packed: [groups, outputs, row], or [groups, row, outputs] if transposed.
template <class Word>
struct PackWeights {
  WeightShape s;
  const Word* w;
  Word* packed;
  bool transposed;

  FQ_HD void operator()(std::int64_t i) const {
    std::int64_t at = i;
    const std::int64_t inner = (transposed ? s.outputs : s.row).take_remainder(at);
    const std::int64_t outer = (transposed ? s.row : s.outputs).take_remainder(at);
    const std::int64_t k = transposed ? outer : inner, output = transposed ? inner : outer;
    // Zero padding adds nothing to the sums.
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
    const std::int64_t k = s.row.take_remainder(at), output = s.outputs.take_remainder(at);
    if (k < s.products) w[s.at(at, output, k)] = packed[i];
  }
};

void pack(const ColumnShape& s, const void* w, int bytes, std::int64_t outputs, bool transposed, void* packed,
          Device device) {
  note_read(w, s.conv.o * s.products() * bytes);
  note_written(packed, s.conv.groups * outputs * s.row * bytes);
  visit_word(bytes, [&]<class Word>(Word) {
    launch_each(device, s.conv.groups * outputs * s.row,
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
  note_read(packed, s.conv.o * s.row * bytes);
  note_written(w, s.conv.o * s.products() * bytes);
  visit_word(bytes, [&]<class Word>(Word) {
    launch_each(device, s.conv.o * s.row,
                UnpackWeights<Word>{WeightShape::of(s, s.group_outputs()), static_cast<const Word*>(packed),
                                    static_cast<Word*>(w)});
  });
}

}  // namespace fq::cuda
