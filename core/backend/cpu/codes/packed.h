#pragma once

/// Codes of 1, 2 and 4 bits, the first in the low bits of a byte.

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// The low bits of codes of a byte each, row-major, in the width of out's type.
void pack_codes(const Tensor& codes, Tensor& out);
/// Back, extending the sign where `is_signed`.
void unpack_codes(const Tensor& packed, bool is_signed, Tensor& out);

}  // namespace fq::cpu
