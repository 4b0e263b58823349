#pragma once

/// The rows of the benchmark: what is timed, against what, and what must be equal first.
///
/// A row is named "<subject>/<peer>", the subject "<family>.<what>[.<size>]". The peer is either C++ too
/// (`theirs` is given) or the function of the same name in bench/peers/<family>.py. A new family is one file
/// <family>_rows.cpp that gives its rows, a line in rows.cpp, and one file in bench/peers.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fq::bench {

struct Settings {
  int threads = 1;
  /// Inputs for a Python peer and its results, as raw arrays `<name>.bin`; see arrays.h.
  std::filesystem::path exchange;
};

/// One side: a call of `run` is timed; where `value` is given, what it returns is the measurement instead
/// (bytes, percent; smaller is better).
struct Side {
  std::function<void()> run;
  std::function<double()> value;
};

/// A row ready to run, with its buffers, and inputs written for the peer.
struct Work {
  Side ours;
  Side theirs;  ///< empty: the peer is Python
  /// What differs, or nothing; called after the peer has left its results. Empty where equality is not meant.
  std::function<std::string()> check;
  /// From seconds a call to `Row::unit`; 1 for values.
  double units_per_second = 1e3;
};

/// What is read off a clock: time spent by this process, which other jobs on the machine hardly change, or
/// the time on the wall, which counts waiting too. With more than one thread it is always the wall.
enum class Clock { cpu, wall };

struct Row {
  std::string name;
  std::string unit;  ///< "ns/element", "ms", ..
  Clock clock = Clock::wall;
  bool python = false;  ///< whether the peer is Python
  std::function<Work(const Settings&)> make;
  bool own_waiting = false;  ///< threads wait as those of the command do, unless the user says how
};

[[nodiscard]] std::vector<Row> kernel_rows();
[[nodiscard]] std::vector<Row> code_rows();
[[nodiscard]] std::vector<Row> step_rows();
[[nodiscard]] std::vector<Row> memory_rows();
[[nodiscard]] std::vector<Row> eval_rows();
[[nodiscard]] std::vector<Row> generate_rows();
[[nodiscard]] std::vector<Row> scaling_rows();
[[nodiscard]] std::vector<Row> busy_rows();
[[nodiscard]] std::vector<Row> loader_rows();
[[nodiscard]] std::vector<Row> calib_rows();
[[nodiscard]] std::vector<Row> weight_range_rows();
[[nodiscard]] std::vector<Row> calibration_rows();

/// Every row of every family, in the order of the report.
[[nodiscard]] std::vector<Row> all_rows();

}  // namespace fq::bench
