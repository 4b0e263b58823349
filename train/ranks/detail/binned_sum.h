#pragma once

/// BinnedSum: sums whose terms come one after another, and which do not depend on their order nor on which
/// process has which.
///
///     BinnedSum sums(3);
///     if (!sums.add(std::vector<float>{0.5f, 1e20f, -3.0f})) throw NumericError("a number is not finite");
///     const std::vector<double> totals = sums.values();  // after merge(ranks), where there are several

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fakequant/train/ranks/communicator.h"

namespace fq {

/// Where all terms are at hand `exact_sums` is nearer; this one keeps 16 bytes a sum, and no term.
///
/// Binned summation (Demmel and Nguyen, "Fast Reproducible Floating-Point Summation", 2013) with integers:
/// bin b counts in units of 2^(36 b), and a term is rounded to those of bin b, to even, what is left to those
/// of bin b - 1; b is the least for which every element of every term is below half a unit of bin b + 1.
/// What goes lost of an element is below 2^-36 of the largest that any has, or below 2^-612.
class BinnedSum {
 public:
  explicit BinnedSum(std::int64_t size);
  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(high_.size()); }

  /// Adds one to each sum. False, and nothing is added, when one is not finite. Throws ArgumentError for
  /// another number of them, and for more than 2^27 terms.
  [[nodiscard]] bool add(std::span<const float> term);
  [[nodiscard]] bool add(std::span<const double> term);

  /// Called by all ranks, of sums of one size: the terms of one of them are all's then.
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
