#pragma once

/// How long threads spin for the next loop before they sleep.

namespace fq::cli {

/// libgomp's threads spin some 300,000 times, a millisecond and more, at the end of each loop: on a machine that
/// others use too they hold the processor that the last thread of the loop waits for. A step of many short
/// loops is then tens of times as slow as its share of the machine; threads that never spin cost half of the
/// second core on small layers. This chooses a short spin, unless the user has chosen (OMP_WAIT_POLICY,
/// GOMP_SPINCOUNT, KMP_BLOCKTIME).
///
/// libgomp reads its environment while it is loaded, so the program is started again with GOMP_SPINCOUNT set:
/// call it first in main. Where that fails it returns, and the threads wait as they would have.
void choose_waiting(char** arguments) noexcept;
/// The variable of the environment that says so, OMP_WAIT_POLICY or another one; null where none does.
[[nodiscard]] const char* waiting_variable() noexcept;

}  // namespace fq::cli
