#pragma once

/// Properties of the machine, and the version. These functions do not throw: an unknown text is empty, an
/// unknown number 0.

#include <cstdint>
#include <string>
#include <vector>

namespace fq::cli {

/// Returns the processor name from the system, "AMD EPYC"; without a name the architecture, "aarch64".
[[nodiscard]] std::string processor_name();
/// Returns the instruction sets of the processor that this library or oneDNN uses: "avx2", "avx512_vnni"; on
/// ARM "asimd".
[[nodiscard]] std::vector<std::string> instruction_sets();
/// Returns the number of processors on which this process may run.
[[nodiscard]] int processors();
/// Returns the mean number of running and waiting processes in the last minute.
[[nodiscard]] double load();
/// Returns the bytes of memory that are available without swapping.
[[nodiscard]] std::int64_t available_memory();
/// Returns "always", "madvise" or "never": the use of pages of 2 MiB.
[[nodiscard]] std::string huge_pages();

/// Returns "fakequant 0.1.0, cpu, codes multiplied as s8".
[[nodiscard]] std::string version_line();

}  // namespace fq::cli
