#include "fakequant/train/ranks/detail/binned_sum.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

constexpr int kBinBits = 36, kLeastBin = -16;
constexpr std::int64_t kMostTerms = std::int64_t{1} << 27;  // of 2^35 units each: the sum fits into 64 bits

double bin_unit(int bin) { return std::ldexp(1.0, kBinBits * bin); }

/// Returns the least bin b with `largest` < 2^(36 (b + 1) - 1). kLeastBin keeps reciprocals of units finite.
int choose_bin(double largest) {
  const int above = std::ilogb(largest) + 1;
  // Division that rounds down for negative exponents, too.
  return std::max(kLeastBin, above >= 0 ? above / kBinBits : -((kBinBits - 1 - above) / kBinBits));
}

}  // namespace

BinnedSum::BinnedSum(std::int64_t size)
    : high_(static_cast<std::size_t>(size), 0), low_(static_cast<std::size_t>(size), 0) {}

bool BinnedSum::add(std::span<const float> term) { return add_term(term); }
bool BinnedSum::add(std::span<const double> term) { return add_term(term); }

template <class T>
bool BinnedSum::add_term(std::span<const T> term) {
  FQ_CHECK(term.size() == high_.size(), "binned_sum", "a term has {} elements, but there are {} sums",
           term.size(), high_.size());
  T largest = 0;
  bool finite = true;
  for (const T value : term) {
    finite &= std::abs(value) <= std::numeric_limits<T>::max();
    largest = std::max(largest, std::abs(value));
  }
  if (!finite) return false;
  count(1);
  if (largest == 0) return true;
  raise(choose_bin(double(largest)));
  const double unit = bin_unit(bin_), small = bin_unit(bin_ - 1), per_unit = 1 / unit, per_small = 1 / small;
  for (std::size_t i = 0; i < high_.size(); ++i) {
    const double value = double(term[i]);
    // |value| < 2^35 units, which llrint rounds without overflow. The rest is at most half a unit: 2^35 small
    // units.
    const std::int64_t whole = std::llrint(value * per_unit);
    high_[i] += whole;
    low_[i] += std::llrint((value - double(whole) * unit) * per_small);
  }
  return true;
}

void BinnedSum::raise(int bin) {
  if (bin <= bin_) return;
  // One bin up, the high part becomes the low part. Further up, every earlier term rounds to 0.
  const bool next = bin_ != kNone && bin == bin_ + 1;
  bin_ = bin;
  std::swap(high_, low_);
  if (!next) std::ranges::fill(low_, 0);
  std::ranges::fill(high_, 0);
}

void BinnedSum::count(std::int64_t terms) {
  FQ_CHECK(terms_ + terms <= kMostTerms, "binned_sum", "more than {} terms: use fewer, larger batches",
           kMostTerms);
  terms_ += terms;
}

void BinnedSum::merge(Communicator& ranks) {
  if (ranks.size() == 1) return;
  std::array<std::int64_t, 1> bin{bin_}, terms{terms_};
  ranks.max(bin);
  ranks.sum(terms);
  // `count` checks the total over all ranks.
  terms_ = 0;
  count(terms[0]);
  if (bin[0] == kNone) return;
  raise(static_cast<int>(bin[0]));
  ranks.sum(high_);
  ranks.sum(low_);
}

std::vector<double> BinnedSum::values() const {
  std::vector<double> out(high_.size(), 0.0);
  if (bin_ == kNone) return out;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = double(high_[i]) * bin_unit(bin_) + double(low_[i]) * bin_unit(bin_ - 1);
  return out;
}

}  // namespace fq
