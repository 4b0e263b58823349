#pragma once

/// Codes of fewer than 8 bits on a GPU, packed, low bits first, or one a byte.

#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// The low bits of codes of a byte each, row-major, in the width of out's type.
void pack_codes(const Tensor& codes, Tensor& out);
/// Back, extending the sign where `is_signed`.
void unpack_codes(const Tensor& packed, bool is_signed, Tensor& out);

}  // namespace fq::cuda
