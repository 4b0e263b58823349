#pragma once

/// Ranks that are threads of one process.

#include <algorithm>
#include <barrier>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fakequant/train/ranks/communicator.h"

namespace fq::test {

/// Meeting point of ranks that are threads of this process.
struct Meeting {
  explicit Meeting(int size) : arrive(size), values(static_cast<std::size_t>(size)) {}
  std::barrier<> arrive;
  std::vector<std::span<std::int64_t>> values;
  std::vector<std::string> texts = std::vector<std::string>(values.size());
};

class ThreadRank final : public Communicator {
 public:
  ThreadRank(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(meeting_.values.size()); }
  void max(std::span<std::int64_t> own) override {
    reduce(own, [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
  }
  void sum(std::span<std::int64_t> own) override { reduce(own, std::plus<>()); }
  void sum(std::span<float>) override { std::terminate(); }
  void sum(std::span<bfloat16>) override { std::terminate(); }
  [[nodiscard]] std::vector<std::string> gather(const std::string& text) override {
    meeting_.texts[static_cast<std::size_t>(rank_)] = text;
    meeting_.arrive.arrive_and_wait();
    auto out = meeting_.texts;
    meeting_.arrive.arrive_and_wait();
    return out;
  }
  [[nodiscard]] std::int64_t bytes() const noexcept override { return 0; }

 private:
  template <class Function>
  void reduce(std::span<std::int64_t> own, const Function& function) {
    meeting_.values[static_cast<std::size_t>(rank_)] = own;
    meeting_.arrive.arrive_and_wait();
    std::vector<std::int64_t> out(own.begin(), own.end());
    for (std::size_t rank = 0; rank < meeting_.values.size(); ++rank)
      if (static_cast<int>(rank) != rank_)
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = function(out[i], meeting_.values[rank][i]);
    meeting_.arrive.arrive_and_wait();
    std::ranges::copy(out, own.begin());
  }

  Meeting& meeting_;
  int rank_;
};

}  // namespace fq::test
