#pragma once

/// Numbers of a table with an entry for each f16, for every vector instruction set, chosen when the program
/// runs.

#include <cstdint>

namespace fq::cpu {

/// y[i] = entries[f16(x[i])], but 0 up to -10 and x[i] from 10 on, for whole vectors: the caller does those
/// behind the count that is returned. `entries` has 65,536 numbers.
std::int64_t gelu_entries_of(const float* x, std::int64_t n, const float* entries, float* y);

}  // namespace fq::cpu
