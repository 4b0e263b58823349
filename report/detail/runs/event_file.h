#pragma once

/// Scalars for TensorBoard: a file of records (TFRecord), each an `Event` message of protocol buffers.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fq::detail {

/// Named numbers of one step.
using Scalars = std::vector<std::pair<std::string, double>>;

/// The record around `data`: its length and `data`, each with its CRC-32C, turned by 15 bits and 0xa282ead8
/// added.
[[nodiscard]] std::string event_record(std::string_view data);
/// The first record of a file, which says what it is.
[[nodiscard]] std::string event_file_head(double wall_time);
/// Says that a run begins, or goes on, at that step: what a file of before told of later steps is not shown.
[[nodiscard]] std::string session_start(double wall_time, std::int64_t step);
/// A record of the scalars of a step.
[[nodiscard]] std::string scalars_record(double wall_time, std::int64_t step, const Scalars& scalars);

}  // namespace fq::detail
