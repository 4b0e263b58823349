#pragma once

/// Where the time of training steps goes, by layer and kind of work. A scope's time is its own, without that
/// of the scopes inside it, so that the rows of a profile add up to the time of the steps.
///
///     Profiler profiler;
///     {
///       const ProfilerScope scope(profiler);
///       trainer.fit();
///     }
///     for (const ProfileRow& row : profiler.profile().rows)
///       std::cout << row.layer << ' ' << row.kind << ' ' << row.milliseconds << " ms\n";
///
/// The Trainer opens a step for each batch; a loop of one's own opens a ProfileStep. Times are those of the
/// host's clock on the thread that trains: work that a GPU does later is counted where the host waits for it.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fakequant/core/context.h"

namespace fq {

/// One kind of work in one layer, as means over the steps.
struct ProfileRow {
  /// The path of the module; empty outside of modules.
  std::string layer;
  /// "quantize", "product forward", "dX", "dW", "epilogue", "optimizer", "loader"; "<module type> forward"
  /// and "<operator> backward" for what those do besides; "other" is what no scope claims.
  std::string kind;
  double milliseconds = 0;  ///< a step
  /// The part of the step that it takes, 0 to 1.
  double share = 0;
  double calls = 0;  ///< a step
};

/// The rows, and the step that they add up to. Empty without a step that counts.
struct Profile {
  std::vector<ProfileRow> rows;  ///< in the order in which they began
  double milliseconds = 0;       ///< a step; the sum of the rows
  std::int64_t steps = 0;        ///< that the means are over
};

/// Collects what the scopes of one thread report while it is installed (ProfilerScope). For use by that
/// thread alone; read it when the steps are done. Memory: the events of the trace, 32 bytes each, and a row
/// for each kind in each layer.
class Profiler {
 public:
  /// The trace holds whole steps, until one has begun behind `traced_scopes` scopes or more; the means are
  /// over all steps.
  explicit Profiler(std::size_t traced_scopes = 100'000) : traced_scopes_(traced_scopes) {}
  Profiler(const Profiler&) = delete;  // installed by address
  Profiler& operator=(const Profiler&) = delete;

  /// The profile of the steps done so far. The first step makes kernels and caches: it is left out when there
  /// are more.
  [[nodiscard]] Profile profile() const;
  /// The traced steps in the Trace Event Format (JSON), for chrome://tracing and Perfetto: complete events,
  /// in microseconds since the profiler was made, with the name "layer: kind" and the kind as category.
  [[nodiscard]] std::string trace() const;

  using Clock = std::chrono::steady_clock;
  /// Work of another thread meanwhile: an event of the trace, in a row of its own, and in no mean.
  void beside(std::string_view kind, Clock::time_point begin, Clock::time_point end);

 private:
  friend class ProfileScope;
  friend class ProfileStep;

  struct Row {
    std::string layer, kind;
    std::int64_t nanoseconds = 0, calls = 0;
  };
  struct Frame {
    std::size_t row;
    std::int64_t begin, inner;  // nanoseconds
  };
  struct Event {
    std::size_t row;
    std::int64_t begin, end;
    int thread = 1;
  };

  [[nodiscard]] bool in_step() const noexcept { return !frames_.empty(); }
  void begin_step();
  void count_step();
  void begin(std::string_view kind, std::string_view direction);
  void end();
  /// Nanoseconds since it was made.
  [[nodiscard]] std::int64_t at(Clock::time_point time) const;
  [[nodiscard]] std::int64_t now() const { return at(Clock::now()); }
  std::size_t row(std::string_view kind, std::string_view direction);

  std::size_t traced_scopes_;
  bool tracing_ = true;
  std::int64_t steps_ = 0, left_out_ = 0;
  Clock::time_point start_ = Clock::now();
  std::string key_;  // of the row asked for: its memory is used again
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<Row> rows_;
  std::vector<Frame> frames_;
  std::vector<Event> events_;
};

/// The profiler of this thread, or null.
[[nodiscard]] inline Profiler* profiler() noexcept { return context().profiler; }

/// Installs a profiler on this thread while it lives; the one before comes back then.
class ProfilerScope : public ScopedValue<Profiler*> {
 public:
  /// `profiler` must outlive this.
  explicit ProfilerScope(Profiler& profiler) : ScopedValue(context().profiler, &profiler) {}
};

/// The work of a training step, or of a part of it, while it lives. Scopes outside of any step are not
/// counted.
///
///     ProfileStep work;
///     train_on(batch);
///     optimizer.step();
///     work.count();
class ProfileStep {
 public:
  ProfileStep();
  ~ProfileStep();
  ProfileStep(const ProfileStep&) = delete;  // tied to its block
  ProfileStep& operator=(const ProfileStep&) = delete;
  /// Says that a step of the optimizer was taken: what came since the one before belongs to it.
  void count();

 private:
  Profiler* profiler_;
};

/// Work of that kind while it lives, in the layer of module_path(). Where nobody profiles it costs one load.
/// The name of the kind is `kind`, or "kind direction".
class ProfileScope {
 public:
  /// Begins the work, which ends with this block; both texts must live as long.
  explicit ProfileScope(std::string_view kind, std::string_view direction = {}) : profiler_(profiler()) {
    if (profiler_ != nullptr) begin(kind, direction);
  }
  ~ProfileScope() {
    if (profiler_ != nullptr) profiler_->end();
  }
  ProfileScope(const ProfileScope&) = delete;  // tied to its block
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  void begin(std::string_view kind, std::string_view direction);

  Profiler* profiler_;
};

}  // namespace fq
