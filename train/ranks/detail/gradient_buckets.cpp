#include "fakequant/train/ranks/detail/gradient_buckets.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/tape.h"
#include "fakequant/train/ranks/detail/gradient_sums.h"

namespace fq::detail {
namespace {

/// Returns the least number of elements of a bucket. Each sum has a fixed cost, and ring messages are parts
/// of a bucket.
std::int64_t bucket_size(int ranks) {
  return std::max<std::int64_t>(1 << 17, (1 << 15) * std::int64_t{ranks});
}

GradientBuckets::Terms columns(const GradientBuckets::Terms& terms, std::size_t begin, std::size_t end) {
  GradientBuckets::Terms out;
  for (const auto& term : terms)
    out.emplace_back(term.begin() + std::ptrdiff_t(begin), term.begin() + std::ptrdiff_t(end));
  return out;
}

std::vector<Tensor> rank_sums(Communicator& ranks, const GradientBuckets::Terms& terms, std::int64_t count,
                              const std::vector<Tensor>& like, fq::Reduction reduction) {
  return reduction == fq::Reduction::exact ? exact_sums(ranks, terms, count, like)
                                           : float_sums(ranks, terms, like, reduction);
}

bool is_same(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || a.raw() == b.raw());
}

}  // namespace

GradientBuckets::GradientBuckets(std::shared_ptr<Communicator> ranks, std::vector<Variable> parameters,
                                 fq::Reduction reduction)
    : ranks_(std::move(ranks)),
      parameters_(std::move(parameters)),
      reduction_(reduction),
      // Early sums need calls of MPI from another thread, and gradients on the host.
      early_(ranks_->size() > 1 && ranks_->any_thread() &&
             std::ranges::all_of(parameters_, [](const Variable& p) { return !p.device().is_cuda(); })),
      came_(parameters_.size(), Came::reported) {
  std::int64_t elements = 0;
  // From the last parameter on; a bucket is closed when it is large enough, or at the first parameter.
  for (std::size_t i = parameters_.size(), end = i; i-- > 0;) {
    elements += parameters_[i].numel();
    if (elements < bucket_size(ranks_->size()) && i > 0) continue;
    buckets_.push_back({i, end});
    end = i;
    elements = 0;
  }
}

GradientBuckets::Begun::~Begun() {
  // The thread refers to this object.
  if (sums.valid()) sums.wait();
}

std::int64_t GradientBuckets::expected_gradients(const Bucket& bucket) const {
  const auto came = std::span(came_).subspan(bucket.begin, bucket.end - bucket.begin);
  // A gradient that came late in the last step would again come after the sum: wait for the end instead.
  if (std::ranges::count(came, Came::late) > 0) return std::numeric_limits<std::int64_t>::max();
  return std::ranges::count(came, Came::reported);
}

void GradientBuckets::begin(const Terms& terms, std::int64_t count) {
  begun_.clear();  // sums of a batch that threw
  terms_ = terms;
  terms_.emplace_back(parameters_.size());
  count_ = count;
  of_leaf_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    // Leaves are reported by gradient; this maps them to parameters.
    of_leaf_.emplace(parameters_[i].node()->gradient.get(), i);
  for (Bucket& bucket : buckets_) bucket.missing = expected_gradients(bucket);
}

void GradientBuckets::ready(const Gradient& leaf) {
  const auto found = of_leaf_.find(&leaf);
  if (found == of_leaf_.end()) return;
  const std::size_t i = found->second;
  if (has_begun(i)) return;  // the sum has started without this gradient; `end` reports it
  terms_.back()[i] = leaf.sum;
  if (came_[i] != Came::reported) return;
  // Buckets are in descending order of parameters: the first one that begins at or before i has it.
  const auto bucket = std::ranges::find_if(buckets_, [i](const Bucket& b) { return b.begin <= i; });
  if (--bucket->missing == 0) start_full_buckets();
}

void GradientBuckets::start_full_buckets() {
  if (!early_) return;
  // A complete bucket waits for the ones before it, because ranks sum in one order.
  for (std::size_t i = begun_.size(); i < buckets_.size() && buckets_[i].missing == 0; ++i) {
    auto& begun = *begun_.emplace_back(std::make_unique<Begun>());
    // One sum after another: all ranks must make their calls in the same order.
    const auto before = i > 0 ? begun_[i - 1]->sums : std::shared_future<Sums>();
    const auto work = [this, &begun, before, like = bucket_parameters(buckets_[i]),
                       terms = columns(terms_, buckets_[i].begin, buckets_[i].end), count = count_] {
      // The backward pass uses the other threads.
      set_threads(1);
      if (before.valid()) before.wait();
      begun.from = Clock::now();
      auto sums = rank_sums(*ranks_, terms, count, like, reduction_);
      begun.to = Clock::now();
      return sums;
    };
    begun.sums = std::async(std::launch::async, work).share();
  }
}

bool GradientBuckets::has_begun(std::size_t parameter) const {
  return !begun_.empty() && parameter >= buckets_[begun_.size() - 1].begin;
}

bool GradientBuckets::end(const std::vector<Tensor>& term) {
  bool whole = true;
  for (std::size_t i = 0; i < term.size(); ++i) {
    // The tensor that was summed early must be the final gradient.
    const bool reported = is_same(terms_.back()[i], term[i]);
    whole &= reported || !has_begun(i);
    came_[i] = !reported ? Came::late : term[i].defined() ? Came::reported : Came::never;
  }
  return whole;
}

GradientBuckets::Sums GradientBuckets::bucket_parameters(const Bucket& bucket) const {
  Sums out;
  for (std::size_t i = bucket.begin; i < bucket.end; ++i) out.push_back(parameters_[i].tensor());
  return out;
}

GradientBuckets::Sums GradientBuckets::finish(const Terms& terms, std::int64_t count) {
  const auto begun = std::exchange(begun_, {});
  terms_.clear();
  Sums out(parameters_.size());
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    const Sums sums = i < begun.size() ? begun[i]->sums.get()
                                       : rank_sums(*ranks_, columns(terms, bucket.begin, bucket.end), count,
                                                   bucket_parameters(bucket), reduction_);
    std::ranges::copy(sums, out.begin() + std::ptrdiff_t(bucket.begin));
    if (i < begun.size() && profiler() != nullptr)
      profiler()->add_concurrent("sums over ranks", begun[i]->from, begun[i]->to);
  }
  return out;
}

}  // namespace fq::detail
