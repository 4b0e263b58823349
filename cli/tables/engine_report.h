#pragma once

/// The report of a module of fakequant.engines, and whether it is complete.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fq::cli {

/// What was given to the engine to be compared with.
struct Expected {
  std::vector<std::string> files;   ///< of what the checkpoint itself computes
  std::vector<std::string> folded;  ///< of the same with its live batch norms folded; none where none is live
  std::int64_t samples = 0, logits = 0;
  std::map<std::string, std::int64_t> codes;  ///< their number, by quantizer
  std::string layers = {};  ///< a file of linear layers, for engines that are compared one by one
};

/// Reads the report that `program` wrote and checks it: every key is there with a value of its type and
/// range, all of `expected` was compared, each quantizer with all its codes or named as missing, and the
/// verdict (`same`) is that of the counts and of `status`, its exit status. Throws BackendError naming what
/// is wrong: the key, or the quantizer.
[[nodiscard]] nlohmann::ordered_json read_engine_report(const std::string& path, const std::string& program,
                                                        int status, const Expected& expected);

}  // namespace fq::cli
