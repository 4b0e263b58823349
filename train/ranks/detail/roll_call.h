#pragma once

/// RollCall: which rank does not come, and who tells of it.

#include <memory>
#include <string>
#include <vector>

namespace fq::detail {

/// Ranks that wait for the others ask who else does. For the processes of MPI; made by all of them.
class RollCall {
 public:
  RollCall();
  ~RollCall();
  RollCall(const RollCall&) = delete;  // has a communicator of its own
  RollCall& operator=(const RollCall&) = delete;

  /// Answers ranks that asked. To be called time and again by a rank that waits.
  void answer() const;
  /// The ranks that did not answer within so many seconds: they compute or hang.
  [[nodiscard]] std::vector<int> absent(double seconds) const;
  /// Whether no other rank made this call before, nor one of a smaller number as early. Takes half a second.
  [[nodiscard]] bool is_first() const;
  /// "rank 2 on node7", of each.
  [[nodiscard]] std::string names(const std::vector<int>& ranks) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::detail
