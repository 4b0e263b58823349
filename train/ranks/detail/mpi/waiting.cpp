#include "fakequant/train/ranks/detail/mpi/waiting.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "fakequant/core/error.h"

namespace fq::mpi {
namespace {

constexpr auto kSpin = std::chrono::milliseconds(20);  // MPI transfers data while it is polled
constexpr auto kPause = std::chrono::microseconds(50);
constexpr double kRollCall = 2;  // seconds; other waiting ranks must answer in time

}  // namespace

Waiting::Waiting(double seconds, std::shared_ptr<const detail::RollCall> roll_call)
    : seconds_(seconds), roll_call_(std::move(roll_call)) {}

void Waiting::until_done(Request& request, int own) const {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  while (!functions().done(&request)) {
    const auto waited = Clock::now() - start;
    if (waited > std::chrono::duration<double>(seconds_)) throw_for_absent(own);
    // Spins first, because most transfers are shorter than a sleep.
    if (waited < kSpin && std::this_thread::get_id() == first_) {
      std::this_thread::yield();
      continue;
    }
    // A waiting rank is alive: it must answer, or another rank would report it as missing.
    roll_call_->answer();
    std::this_thread::sleep_for(kPause);
  }
}

void Waiting::throw_for_absent(int own) const {
  const auto absent = roll_call_->absent(kRollCall);
  throw BackendError(fmt::format(
      "[ranks] {} waited {} s for {}: {} hangs or is much slower; raise rank_timeout to wait longer",
      roll_call_->names({own}), seconds_, absent.empty() ? "the others" : roll_call_->names(absent),
      absent.size() == 1 ? "it" : "one of them"));
}

}  // namespace fq::mpi
