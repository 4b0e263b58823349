#pragma once

/// Codes of one byte where each column of a matrix has a scale of its own.

#include "fakequant/core/backend/kernels.h"

namespace fq::cuda {

/// Quantizes where codes are integers of one byte, columns whole groups of eight and everything lies at multiples
/// of 16 bytes, with the bits of `quantize`; false, and nothing is done, elsewhere.
bool quantize_code_columns(const fq::detail::QuantizeCall& call);

}  // namespace fq::cuda
