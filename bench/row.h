#pragma once

/// Rows of the benchmark: the timed function, its peer, and the check that both give equal results.
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

/// One side of a row. `run` is timed, or `value` returns the measurement (bytes, percent; smaller is better).
struct Side {
  std::function<void()> run;
  std::function<double()> value;
};

/// A row ready to run, with its buffers, and inputs written for the peer.
struct Work {
  Side ours;
  Side theirs;  ///< empty: the peer is Python
  /// Describes the first difference between the results of both sides, or returns an empty text. Called after
  /// the peer has published its results. Empty function: the results need not be equal.
  std::function<std::string()> check;
  /// Factor from seconds per call to `Row::unit`; 1 for values.
  double units_per_second = 1e3;
};

/// The clock of a row: CPU time of this process, which other jobs hardly change, or wall time, which includes
/// waiting. With more than one thread it is always wall time.
enum class Clock { cpu, wall };

struct Row {
  std::string name;
  std::string unit;  ///< "ns/element", "ms", ..
  Clock clock = Clock::wall;
  bool python = false;  ///< whether the peer is Python
  std::function<Work(const Settings&)> make;
  bool own_waiting = false;  ///< use the command's wait policy for threads, unless the user sets one
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
