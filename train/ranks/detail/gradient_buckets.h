#pragma once

/// GradientBuckets: sums of gradients over ranks, which begin while the backward pass still makes others.

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fakequant/core/variable.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::detail {

struct Gradient;

/// A bucket is a run of parameters, from the last one on, as their gradients come. In the last batch that a
/// rank has of a step a bucket goes to another thread as soon as its gradients are there and those before it
/// went; what is left goes at the end. Ranks meet in the order of the buckets, whoever begins early, and sums
/// have the bits of one bucket of all parameters. Destroyed, it waits for the sums that have begun.
class GradientBuckets {
 public:
  using Terms = std::vector<std::vector<Tensor>>;  // of each batch, a gradient a parameter

  GradientBuckets(std::shared_ptr<Communicator> ranks, std::vector<Variable> parameters,
                  fq::Reduction reduction);

  /// Before the last batch of this rank, of `count` in the step. `terms` are those of its others.
  void begin(const Terms& terms, std::int64_t count);
  /// The gradient of a leaf is complete in that batch; nothing for leaves that are no parameters.
  void ready(const Gradient& leaf);
  /// What the batch gave in all. False when a sum has begun without a part of it, as where a gradient comes
  /// for the first time: then `finish` is to be called again, by all ranks.
  [[nodiscard]] bool end(const std::vector<Tensor>& term);
  /// Made by all ranks: the sums, in the order of the parameters. `terms` are all that this rank has, `count`
  /// those of the step.
  [[nodiscard]] std::vector<Tensor> finish(const Terms& terms, std::int64_t count);

 private:
  using Sums = std::vector<Tensor>;  // of a bucket's parameters
  using Clock = std::chrono::steady_clock;
  /// When a parameter's gradient arrived in the last step: `ready` reported all of it, or not.
  enum class Came : unsigned char { never, reported, late };
  struct Bucket {
    std::size_t begin, end;  // parameters
    std::int64_t missing = 0;
  };
  struct Begun {
    std::shared_future<Sums> sums;
    Clock::time_point from, to;
    ~Begun();  // waits
  };

  [[nodiscard]] std::int64_t gradients_of(const Bucket& bucket) const;
  [[nodiscard]] bool has_begun(std::size_t parameter) const;
  void start_full_buckets();
  [[nodiscard]] Sums parameters_of(const Bucket& bucket) const;

  std::shared_ptr<Communicator> ranks_;
  std::vector<Variable> parameters_;
  fq::Reduction reduction_;
  bool early_;  // buckets go when they are full: on the host, where the transport takes any thread
  std::vector<Bucket> buckets_;
  std::vector<Came> came_;
  std::unordered_map<const Gradient*, std::size_t> of_leaf_;
  Terms terms_;  // of the batches before, then of the one that runs; none between steps
  std::int64_t count_ = 0;
  std::vector<std::unique_ptr<Begun>> begun_;  // the first buckets
};

}  // namespace fq::detail
