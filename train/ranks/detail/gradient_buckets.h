#pragma once

/// GradientBuckets: sums of gradients over ranks that overlap with the backward pass.

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

/// A bucket is a range of consecutive parameters. Buckets start from the last parameter, because backward
/// computes its gradient first. In the last batch of this rank in a step, another thread sums a bucket as
/// soon as its gradients are complete and all earlier buckets are started. `finish` sums the remaining
/// buckets. All ranks sum in the order of the buckets, even if some start earlier. The sums have the same
/// bits as one bucket of all parameters. The destructor waits for sums that have started.
class GradientBuckets {
 public:
  using Terms = std::vector<std::vector<Tensor>>;  // per batch, one gradient per parameter

  GradientBuckets(std::shared_ptr<Communicator> ranks, std::vector<Variable> parameters,
                  fq::Reduction reduction);

  /// Begins the last batch of this rank, in a step of `count` batches. `terms` are its other batches.
  void begin(const Terms& terms, std::int64_t count);
  /// Reports that the gradient of `leaf` is complete. Ignores leaves that are not parameters.
  void ready(const Gradient& leaf);
  /// Ends the batch with all its gradients. Returns false if a sum has started without one of them, for
  /// example if a parameter gets a gradient for the first time. All ranks must then call `finish` again.
  [[nodiscard]] bool end(const std::vector<Tensor>& term);
  /// Returns the sums in the order of the parameters. All ranks must call it. `terms` are all batches of this
  /// rank, `count` is the number of batches in the step.
  [[nodiscard]] std::vector<Tensor> finish(const Terms& terms, std::int64_t count);

 private:
  using Sums = std::vector<Tensor>;  // sums of a bucket's parameters
  using Clock = std::chrono::steady_clock;
  /// How a parameter's gradient arrived in the last step: not at all, reported by `ready`, or later.
  enum class Came : unsigned char { never, reported, late };
  struct Bucket {
    std::size_t begin, end;  // range of parameters
    std::int64_t missing = 0;
  };
  struct Begun {
    std::shared_future<Sums> sums;
    Clock::time_point from, to;
    ~Begun();  // waits for the sums
  };

  [[nodiscard]] std::int64_t expected_gradients(const Bucket& bucket) const;
  [[nodiscard]] bool has_begun(std::size_t parameter) const;
  void start_full_buckets();
  [[nodiscard]] Sums bucket_parameters(const Bucket& bucket) const;

  std::shared_ptr<Communicator> ranks_;
  std::vector<Variable> parameters_;
  fq::Reduction reduction_;
  bool early_;  // starts full buckets early: on the CPU, if any thread may communicate
  std::vector<Bucket> buckets_;
  std::vector<Came> came_;
  std::unordered_map<const Gradient*, std::size_t> of_leaf_;
  Terms terms_;  // earlier batches, then the current one; empty between steps
  std::int64_t count_ = 0;
  std::vector<std::unique_ptr<Begun>> begun_;  // sums of the first buckets
};

}  // namespace fq::detail
