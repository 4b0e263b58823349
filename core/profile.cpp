#include "fakequant/core/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/trace.h"

namespace fq {
namespace {

/// Microseconds with all three decimals, so that events nest to the nanosecond.
std::string microseconds(std::int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

// Paths may have any bytes; a trace must stay valid JSON.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

ProfileStep::ProfileStep() : profiler_(profiler()) {
  if (profiler_ != nullptr) profiler_->begin_step();
}
ProfileStep::~ProfileStep() {
  if (profiler_ != nullptr) profiler_->end();
}
void ProfileStep::count() {
  if (profiler_ != nullptr) profiler_->count_step();
}

void ProfileScope::begin(std::string_view kind, std::string_view direction) {
  if (profiler_->has_open_step())
    profiler_->begin(kind, direction);
  else
    profiler_ = nullptr;
}

std::int64_t Profiler::at(Clock::time_point time) const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time - start_).count();
}

void Profiler::add_concurrent(std::string_view kind, Clock::time_point begin, Clock::time_point end) {
  if (tracing_) events_.push_back({row(kind, {}), at(begin), at(end), 2});
}

void Profiler::begin_step() {
  if (!has_open_step()) {
    // The trace ends at a step boundary: every traced step is complete.
    tracing_ = tracing_ && events_.size() < traced_scopes_;
    if (steps_ == 1 && left_out_ == 0) {
      // Drops the first step, which creates kernels and caches, once there is a second one.
      left_out_ = 1;
      for (Row& row : rows_) row.nanoseconds = row.calls = 0;
    }
  }
  begin("other", {});
}

void Profiler::count_step() { ++steps_; }

std::size_t Profiler::row(std::string_view kind, std::string_view direction) {
  // `key_` is a member, so that a look-up of a known row allocates nothing.
  key_.assign(module_path());
  const std::size_t layer = key_.size();
  key_.append(1, '\n').append(kind);
  if (!direction.empty()) key_.append(1, ' ').append(direction);
  const auto [entry, added] = index_.try_emplace(key_, rows_.size());
  if (added) rows_.push_back({key_.substr(0, layer), key_.substr(layer + 1)});
  return entry->second;
}

void Profiler::begin(std::string_view kind, std::string_view direction) {
  const std::size_t at = row(kind, direction);
  frames_.push_back({at, now(), 0});
}

void Profiler::end() {
  const std::int64_t end = now();
  const Frame frame = frames_.back();
  frames_.pop_back();
  const std::int64_t duration = end - frame.begin;
  // Inner scopes have counted their own time.
  rows_[frame.row].nanoseconds += duration - frame.inner;
  ++rows_[frame.row].calls;
  // The enclosing scope subtracts this time, so that the rows add up to the time of the steps.
  if (has_open_step()) frames_.back().inner += duration;
  if (tracing_) events_.push_back({frame.row, frame.begin, end});
}

Profile Profiler::profile() const {
  Profile out{.rows = {}, .steps = steps_ - left_out_};
  const double steps = static_cast<double>(out.steps);
  std::int64_t total = 0;
  for (const Row& row : rows_) total += row.nanoseconds;
  if (out.steps == 0 || total == 0) return out;
  out.milliseconds = static_cast<double>(total) * 1e-6 / steps;
  for (const Row& row : rows_) {
    if (row.calls == 0) continue;
    const auto time = static_cast<double>(row.nanoseconds);
    out.rows.push_back({row.layer, row.kind, time * 1e-6 / steps, time / static_cast<double>(total),
                        static_cast<double>(row.calls) / steps});
  }
  return out;
}

std::string Profiler::trace() const {
  std::string out = R"({"displayTimeUnit": "ms", "traceEvents": [)"
                    "\n"
                    R"({"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "training"}})";
  if (std::ranges::any_of(events_, [](const Event& event) { return event.thread == 2; }))
    out +=
        ",\n"
        R"({"name": "thread_name", "ph": "M", "pid": 1, "tid": 2, "args": {"name": "beside it"}})";
  std::vector<std::string> names;
  for (const Row& row : rows_) {
    const std::string name = row.layer.empty() ? row.kind : row.layer + ": " + row.kind;
    names.push_back(fmt::format(R"("name": {}, "cat": {})", quoted(name), quoted(row.kind)));
  }
  for (const Event& event : events_)
    fmt::format_to(
        std::back_inserter(out), ",\n{{{}, \"ph\": \"X\", \"pid\": 1, \"tid\": {}, \"ts\": {}, \"dur\": {}}}",
        names[event.row], event.thread, microseconds(event.begin), microseconds(event.end - event.begin));
  return out + "\n]}\n";
}

}  // namespace fq
