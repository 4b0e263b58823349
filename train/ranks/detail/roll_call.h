#pragma once

/// RollCall: finds ranks that do not respond, and chooses the rank that reports them.

#include <memory>
#include <string>
#include <vector>

namespace fq::detail {

/// Waiting ranks ask which other ranks wait, too. For MPI processes; all of them must create it.
class RollCall {
 public:
  RollCall();
  ~RollCall();
  RollCall(const RollCall&) = delete;  // has a communicator of its own
  RollCall& operator=(const RollCall&) = delete;

  /// Answers ranks that asked. A waiting rank must call it repeatedly.
  void answer() const;
  /// Returns the ranks that did not answer within `seconds`: they compute or hang.
  [[nodiscard]] std::vector<int> absent(double seconds) const;
  /// Returns whether no other rank called it before, and no smaller rank at the same time. Takes half a
  /// second.
  [[nodiscard]] bool is_first() const;
  /// Returns the names of `ranks`, for example "rank 2 on node7, rank 5 on node8".
  [[nodiscard]] std::string names(const std::vector<int>& ranks) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::detail
