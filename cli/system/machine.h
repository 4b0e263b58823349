#pragma once

/// The machine and the version. These functions throw nothing: an unknown text is empty, an unknown number 0.

#include <cstdint>
#include <string>
#include <vector>

namespace fq::cli {

/// "AMD EPYC", as the system names it; where it gives no name, as on most of ARM, "aarch64".
[[nodiscard]] std::string processor_name();
/// Of the instruction sets that kernels, ours or oneDNN's, are written for, those that the processor has:
/// "avx2", "avx512_vnni"; on ARM "asimd".
[[nodiscard]] std::vector<std::string> instruction_sets();
/// Processors that this process may run on.
[[nodiscard]] int processors();
/// Processes that ran or waited to run, on the mean of the last minute.
[[nodiscard]] double load();
/// Bytes of memory that can be had without swapping.
[[nodiscard]] std::int64_t available_memory();
/// "always", "madvise" or "never": whether memory is given in pages of 2 MiB.
[[nodiscard]] std::string huge_pages();

/// "fakequant 0.1.0, cpu, codes multiplied as s8".
[[nodiscard]] std::string version_line();

}  // namespace fq::cli
