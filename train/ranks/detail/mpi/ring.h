#pragma once

/// Sums over ranks in a ring.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "fakequant/train/ranks/detail/mpi/functions.h"
#include "fakequant/train/ranks/detail/mpi/waiting.h"

namespace fq::mpi {

struct Ring {
  Group ranks;
  int own, size;
  const Waiting& waiting;
};

/// Messages of one ring step, `segment` elements each. A segment is used while others are still in transfer.
class Messages {
 public:
  static constexpr std::size_t segment = std::size_t{1} << 15;

  explicit Messages(const Ring& ring) : ring_(ring) {}
  ~Messages() {
    for (const auto request : received_) functions().give_up(request);  // of a step that threw
  }
  Messages(const Messages&) = delete;  // owns its requests
  Messages& operator=(const Messages&) = delete;

  template <class T>
  void send_to_next(std::span<T> values) {
    for (std::size_t at = 0; at < values.size(); at += segment)
      sent_.push_back(
          functions().send(ring_.ranks, values.data() + at, bytes(values, at), (ring_.own + 1) % ring_.size));
  }
  template <class T>
  void receive_from_last(std::span<T> values) {
    for (std::size_t at = 0; at < values.size(); at += segment)
      received_.push_back(functions().receive(ring_.ranks, values.data() + at, bytes(values, at),
                                              (ring_.own + ring_.size - 1) % ring_.size));
  }
  /// Calls use(begin) for each segment as it arrives. Returns when all segments are received and sent.
  template <class Use>
  void wait(const Use& use) {
    for (std::size_t i = 0; i < received_.size(); ++i) {
      ring_.waiting.until_done(received_[i], ring_.own);
      use(i * segment);
    }
    for (auto& request : sent_) ring_.waiting.until_done(request, ring_.own);
  }

 private:
  template <class T>
  static int bytes(std::span<T> values, std::size_t at) {
    return static_cast<int>(std::min(segment, values.size() - at) * sizeof(T));
  }

  const Ring& ring_;
  std::vector<Request> sent_, received_;
};

/// Replaces each element by the combination of the elements of all ranks. Each part of the array goes around
/// the ring twice: first it is combined, then its result is distributed (Thakur, Rabenseifner and Gropp
/// 2005). Each link carries 2 (n - 1) / n of the array's bytes. Returns the bytes that this rank sent.
template <class T, class Combine>
std::int64_t combine_in_ring(const Ring& ring, std::span<T> values, const Combine& combine) {
  const auto parts = static_cast<std::size_t>(ring.size);
  const auto part = [&](int place) {
    const auto p = static_cast<std::size_t>((place % ring.size + ring.size) % ring.size);
    const std::size_t begin = values.size() * p / parts, end = values.size() * (p + 1) / parts;
    return values.subspan(begin, end - begin);
  };
  std::int64_t bytes = 0;
  std::vector<T> come(values.size() / parts + 1);
  for (int step = 0; step < 2 * (ring.size - 1); ++step) {
    const bool complete = step >= ring.size - 1;
    const std::span<T> out = part(ring.own - step), in = part(ring.own - step - 1);
    Messages messages(ring);
    messages.receive_from_last(complete ? in : std::span(come).first(in.size()));
    messages.send_to_next(out);
    messages.wait([&](std::size_t begin) {
      if (complete) return;
      const std::size_t end = std::min(begin + Messages::segment, in.size());
      for (std::size_t i = begin; i < end; ++i) in[i] = combine(in[i], come[i]);
    });
    bytes += static_cast<std::int64_t>(out.size_bytes());
  }
  return bytes;
}

}  // namespace fq::mpi
