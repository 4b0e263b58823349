#pragma once

/// Spin time of idle threads.

namespace fq::cli {

/// Shortens the spin of idle threads of libgomp, unless the user has set OMP_WAIT_POLICY, GOMP_SPINCOUNT or
/// KMP_BLOCKTIME. By default they spin some 300,000 times, a millisecond and more, at the end of each loop.
/// On a shared machine they then occupy the processor that the last thread of the loop needs. A step of many
/// short loops becomes tens of times slower than its share of the machine. Threads without any spin lose half
/// of the second core on small layers.
///
/// libgomp reads its environment when it is loaded, so this function starts the program again with
/// GOMP_SPINCOUNT set. Call it first in main. If the restart fails, it returns, and the threads wait as
/// usual.
void choose_waiting(char** arguments) noexcept;
/// Returns the environment variable that sets the wait policy, OMP_WAIT_POLICY or another one; null if no
/// variable is set.
[[nodiscard]] const char* waiting_variable() noexcept;

}  // namespace fq::cli
