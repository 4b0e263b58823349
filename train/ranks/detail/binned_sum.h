#pragma once

/// BinnedSum: sums of terms that arrive one after another. The bits do not depend on the order of the terms
/// or on their distribution over processes.
///
///     BinnedSum sums(3);
///     if (!sums.add(std::vector<float>{0.5f, 1e20f, -3.0f})) throw NumericError("a number is not finite");
///     const std::vector<double> totals = sums.values();  // after merge(ranks), if there are several

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fakequant/train/ranks/communicator.h"

namespace fq {

/// Keeps 16 bytes per sum and no terms. `exact_sums` is more accurate if all terms are in memory.
///
/// Binned summation (Demmel and Nguyen, "Fast Reproducible Floating-Point Summation", 2013) with integers.
/// Bin b counts in units of 2^(36 b). A term is rounded to even to a multiple of the unit of bin b, and its
/// rest to the unit of bin b - 1. b is the least bin for which every element of every term is below half a
/// unit of bin b + 1. The error of an element is below 2^-36 of the largest element of all terms, or below
/// 2^-612.
class BinnedSum {
 public:
  explicit BinnedSum(std::int64_t size);
  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(high_.size()); }

  /// Adds one element to each sum. Returns false, and adds nothing, if an element is not finite. Throws
  /// ArgumentError for another number of elements, and for more than 2^27 terms.
  [[nodiscard]] bool add(std::span<const float> term);
  [[nodiscard]] bool add(std::span<const double> term);

  /// Adds the terms of all ranks on each rank. All ranks must call it, with the same number of sums.
  void merge(Communicator& ranks);

  [[nodiscard]] std::vector<double> values() const;

 private:
  static constexpr int kNone = std::numeric_limits<int>::min();

  template <class T>
  bool add_term(std::span<const T> term);
  void raise(int bin);
  void count(std::int64_t terms);

  int bin_ = kNone;  // of high_
  std::int64_t terms_ = 0;
  std::vector<std::int64_t> high_, low_;
};

}  // namespace fq
