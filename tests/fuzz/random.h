#pragma once

/// Random descriptors, tensors and golden cases, valid and invalid, for the fuzz program.

#include <random>

#include "case.h"
#include "fakequant/core/descriptor.h"

namespace fq::fuzz {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// low .. high, both included.
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  [[nodiscard]] bool chance(int n) { return integer(1, n) == 1; }
  template <class List>
  [[nodiscard]] auto pick(const List& list) {
    return *std::next(std::begin(list), integer(0, static_cast<std::int64_t>(std::size(list)) - 1));
  }
  /// Ordinary values, and now and then zeros, subnormals, infinities, NaN and numbers without any bound.
  [[nodiscard]] double number();

  /// At most 4 axes of at most 9, a size of 0 among them.
  [[nodiscard]] Shape shape();
  [[nodiscard]] DType dtype();
  [[nodiscard]] Tensor tensor(const Shape& shape, DType dtype);
  [[nodiscard]] QuantDescriptorOptions descriptor();
  /// The case with a few of its tensors, parameters and names changed or left out. `texts` are the values
  /// that some case has for each name.
  [[nodiscard]] golden::Case mutated(golden::Case c,
                                     const std::map<std::string, std::vector<std::string>>& texts);

 private:
  Axes axes();
  BlockSizes blocks();
  Amax amax();
  void mutate(Tensor& t);
  void mutate(std::vector<double>& numbers);

  std::mt19937_64 engine_;
};

}  // namespace fq::fuzz
