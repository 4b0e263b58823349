#pragma once

#include <cstdint>

namespace fq::cpu {

/// How many of that many rows `chain_blocks` may take by tiles: none where the processor has no AMX or the
/// system does not let this process use it, which oneDNN has asked (ONEDNN_MAX_CPU_ISA applies).
[[nodiscard]] std::int64_t tiled_rows(std::int64_t rows);

}  // namespace fq::cpu
