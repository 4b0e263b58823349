#pragma once

/// Profiler: measures the time of training steps by layer and kind of work. The time of a scope excludes its
/// inner scopes, so the rows of a profile add up to the time of the steps.
///
///     Profiler profiler;
///     {
///       const ProfilerScope scope(profiler);
///       trainer.fit();
///     }
///     for (const ProfileRow& row : profiler.profile().rows)
///       std::cout << row.layer << ' ' << row.kind << ' ' << row.milliseconds << " ms\n";
///
/// The Trainer opens a step for each batch; a custom loop opens a ProfileStep. Times are wall-clock times of
/// the training thread on the host. GPU work is counted at the point where the host waits for it.

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
  /// Path of the module; empty outside of modules.
  std::string layer;
  /// "quantize", "product forward", "dX", "dW", "epilogue", "optimizer", "loader". The remaining time of a
  /// module or operator is "<module type> forward" and "<operator> backward". "other" is time outside of all
  /// scopes.
  std::string kind;
  double milliseconds = 0;  ///< per step
  /// Fraction of the step's time, 0 to 1.
  double share = 0;
  double calls = 0;  ///< per step
};

/// The rows and the total of a step. Empty if no step was counted.
struct Profile {
  std::vector<ProfileRow> rows;  ///< in order of their first occurrence
  double milliseconds = 0;       ///< per step; the sum of the rows
  std::int64_t steps = 0;        ///< number of steps in the means
};

/// Collects the scopes of one thread while it is installed (ProfilerScope). Not thread-safe; read it after
/// the last step. Memory: 32 bytes per traced event, and one row per kind of work and layer.
class Profiler {
 public:
  /// Limits the trace to whole steps: tracing stops after the step whose scopes reach `traced_scopes` in
  /// total. The means include all steps.
  explicit Profiler(std::size_t traced_scopes = 100'000) : traced_scopes_(traced_scopes) {}
  Profiler(const Profiler&) = delete;  // installed by address
  Profiler& operator=(const Profiler&) = delete;

  /// Returns the profile of the completed steps. The first step creates kernels and caches; it is excluded
  /// if there are others.
  [[nodiscard]] Profile profile() const;
  /// Returns the traced steps in the Trace Event Format (JSON), for chrome://tracing and Perfetto. The
  /// events are complete events in microseconds since the profiler was created, named "layer: kind" with the
  /// kind as category.
  [[nodiscard]] std::string trace() const;

  using Clock = std::chrono::steady_clock;
  /// Adds concurrent work of another thread as an event in a separate row of the trace. The means do not
  /// include it.
  void add_concurrent(std::string_view kind, Clock::time_point begin, Clock::time_point end);

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

  [[nodiscard]] bool has_open_step() const noexcept { return !frames_.empty(); }
  void begin_step();
  void count_step();
  void begin(std::string_view kind, std::string_view direction);
  void end();
  /// Returns the nanoseconds since construction.
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

/// Returns the profiler of this thread, or null.
[[nodiscard]] inline Profiler* profiler() noexcept { return context().profiler; }

/// Installs a profiler on this thread for the lifetime of this object, then restores the previous one.
class ProfilerScope : public ScopedValue<Profiler*> {
 public:
  /// `profiler` must outlive this object.
  explicit ProfilerScope(Profiler& profiler) : ScopedValue(context().profiler, &profiler) {}
};

/// Marks the lifetime of this object as work of a training step. Scopes outside of a step are not counted.
///
///     ProfileStep work;
///     train_batch(batch);
///     optimizer.step();
///     work.count();
class ProfileStep {
 public:
  ProfileStep();
  ~ProfileStep();
  ProfileStep(const ProfileStep&) = delete;  // tied to its block
  ProfileStep& operator=(const ProfileStep&) = delete;
  /// Ends an optimizer step: all work since the previous call belongs to it.
  void count();

 private:
  Profiler* profiler_;
};

/// Measures its lifetime as work of a kind in the layer module_path(). Costs one load if no profiler is
/// installed. The kind is named `kind`, or "kind direction".
class ProfileScope {
 public:
  /// Starts the measurement. Both texts must outlive this object.
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
