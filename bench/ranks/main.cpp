// Times the exact sum of gradients over ranks against MPI's sum of the same number of doubles:
//
//     mpiexec -n 2 build/release/bin/fakequant_bench_ranks [elements]
//
// Both sides in turn, A B B A a round; prints the median of the ratios on rank 0.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include "fakequant/core/random.h"
#include "fakequant/train/ranks/detail/gradient_sums.h"

namespace {

constexpr int kRounds = 25;
constexpr std::int64_t kElements = 270'000;  // of resnet20

/// Milliseconds of a call that all ranks make, from the last one's beginning.
double timed(const std::function<void()>& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

void compare(fq::Communicator& ranks, std::int64_t elements) {
  fq::Tensor gradient = fq::Tensor::empty({elements});
  fq::fill_normal(gradient, 0, 1, std::uint64_t(ranks.rank()) + 1);
  std::vector<double> doubles(static_cast<std::size_t>(elements), 1.0);
  const auto ours = [&] { (void)fq::exact_sums(ranks, {{gradient}}, ranks.size(), {gradient}); };
  const auto theirs = [&] {
    MPI_Allreduce(MPI_IN_PLACE, doubles.data(), int(elements), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  };
  std::vector<double> ratios, own, other;
  for (int round = -2; round < kRounds; ++round) {
    const double a = timed(ours), b = timed(theirs), c = timed(theirs), d = timed(ours);
    if (round < 0) continue;
    own.push_back((a + d) / 2);
    other.push_back((b + c) / 2);
    ratios.push_back(other.back() / own.back());
  }
  if (ranks.rank() != 0) return;
  fmt::print(
      "ranks.reduce/mpi_doubles {:.3f} ({:.3f} .. {:.3f}, {} rounds): {} elements on {} ranks, {:.2f} and "
      "{:.2f} ms\n",
      median(ratios), std::ranges::min(ratios), std::ranges::max(ratios), kRounds, elements, ranks.size(),
      median(own), median(other));
}

}  // namespace

int main(int count, char** arguments) {
  const auto ranks = fq::started_ranks();
  if (ranks->size() == 1) {
    std::fputs("start it with mpiexec -n 2, or more\n", stderr);
    return 2;
  }
  compare(*ranks, count > 1 ? std::atoll(arguments[1]) : kElements);
  return 0;
}
