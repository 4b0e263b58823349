#pragma once

/// What the process is allowed to take.

namespace fq::cli {

/// Most threads to compute on.
inline constexpr int kMostThreads = 1024;

/// Throws SystemError where stack or address space (ulimit -s, -v) are less than oneDNN can work with: it
/// does not say so itself, it crashes. Lowers the number of threads to kMostThreads, with a warning.
void check_limits();

/// Sets the number of threads to compute on. Warns where OpenMP gives fewer.
void use_threads(int count);

}  // namespace fq::cli
