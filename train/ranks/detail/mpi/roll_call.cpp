#include "fakequant/train/ranks/detail/roll_call.h"

#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/train/ranks/detail/mpi/functions.h"

namespace fq::detail {
namespace {

using Clock = std::chrono::steady_clock;

enum Message : int { kAsk, kHere, kSpeaks };
constexpr auto kMessageTime = std::chrono::milliseconds(500);  // longer than a message takes
constexpr auto kPoll = std::chrono::milliseconds(1);

}  // namespace

struct RollCall::Body {
  mpi::Group ranks = 0;
  int own = 0, size = 1;
  std::vector<std::string> hosts;

  /// Returns the next rank that sent `message`; -1 for none.
  [[nodiscard]] int received(Message message) const { return mpi::functions().heard(ranks, message); }

  void send(int rank, Message message) const { mpi::functions().tell(ranks, rank, message); }

  void send_to_others(Message message) const {
    for (int rank = 0; rank < size; ++rank)
      if (rank != own) send(rank, message);
  }

  // Host names are exchanged at the start: a missing rank cannot send its name later.
  void gather_hosts() {
    std::string all(static_cast<std::size_t>(size) * mpi::kNameBytes, '\0');
    mpi::functions().names(ranks, all.data());
    for (int i = 0; i < size; ++i) hosts.emplace_back(all.data() + std::size_t(i) * mpi::kNameBytes);
  }
};

RollCall::RollCall() : body_(std::make_unique<Body>()) {
  body_->ranks = mpi::functions().group(&body_->own, &body_->size);
  body_->gather_hosts();
}
RollCall::~RollCall() = default;

void RollCall::answer() const {
  for (int rank = body_->received(kAsk); rank >= 0; rank = body_->received(kAsk)) body_->send(rank, kHere);
}

std::vector<int> RollCall::absent(double seconds) const {
  // This rank asks all others and answers in the same loop.
  std::vector<bool> here(static_cast<std::size_t>(body_->size), false);
  here[static_cast<std::size_t>(body_->own)] = true;
  body_->send_to_others(kAsk);
  // Polls instead of waiting for a reply: ranks that hang never send one.
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    // Another rank may hold a roll call at the same time.
    answer();
    for (int rank = body_->received(kHere); rank >= 0; rank = body_->received(kHere))
      here[static_cast<std::size_t>(rank)] = true;
    std::this_thread::sleep_for(kPoll);
  }
  std::vector<int> out;
  for (int rank = 0; rank < body_->size; ++rank)
    if (!here[static_cast<std::size_t>(rank)]) out.push_back(rank);
  return out;
}

bool RollCall::is_first() const {
  if (body_->received(kSpeaks) >= 0) return false;
  body_->send_to_others(kSpeaks);
  const auto end = Clock::now() + kMessageTime;
  while (Clock::now() < end) {
    for (int rank = body_->received(kSpeaks); rank >= 0; rank = body_->received(kSpeaks))
      // The lowest rank speaks if several try at once.
      if (rank < body_->own) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

std::string RollCall::names(const std::vector<int>& ranks) const {
  std::vector<std::string> out;
  for (const int rank : ranks)
    out.push_back(fmt::format("rank {} on {}", rank, body_->hosts.at(static_cast<std::size_t>(rank))));
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace fq::detail
