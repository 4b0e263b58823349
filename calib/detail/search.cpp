#include "fakequant/calib/detail/search.h"

#include <cmath>

#include "fakequant/core/detail/check.h"

namespace fq::detail {

Format search_format(const CalibratorOptions& o, std::string_view function) {
  if (o.num_bits.is_integer()) return IntFormat{o.num_bits.bits(), o.is_unsigned, o.narrow_range};
  FQ_CHECK(o.num_bits == NumBits(4, 3) || o.num_bits == NumBits(2, 1), function,
           "{}: use an integer format, (4, 3) or (2, 1)", to_string(o.num_bits));
  return FloatFormat{o.num_bits.exponent(), o.num_bits.mantissa()};
}

std::vector<float> linspace(float first, float last, int count) {
  const float step = (last - first) / static_cast<float>(count - 1);
  std::vector<float> out;
  for (int i = 0; i < count; ++i)
    out.push_back(i < count / 2 ? std::fma(step, static_cast<float>(i), first)
                                : std::fma(-step, static_cast<float>(count - 1 - i), last));
  return out;
}

}  // namespace fq::detail
