#pragma once

/// What a network was trained on, as far as its data told, beside its class names in a checkpoint:
///
///     "inputs": {"columns": ["length", "width"], "scale": 0.0625, "mean": [0.5], "std": [0.25]}
///
/// Keys that nothing is known of are not there; files of before have no "inputs" at all.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "fakequant/train/data/dataset.h"

namespace fq::detail {

/// Throws json::exception or ArgumentError for an identity whose "inputs" are no such notes.
void check_notes_of(const nlohmann::json& identity);

/// Throws ArgumentError for data of other columns, or in another order, than the network's identity says.
/// Gives a warning of data that is scaled or normalised otherwise, else nothing. What one of both does not
/// tell passes.
[[nodiscard]] std::string check_sample_notes(const nlohmann::json& identity, const Dataset& data,
                                             std::string_view function);

/// The same, after which the identity has of the data what it did not know.
[[nodiscard]] std::string take_sample_notes(nlohmann::json& identity, const Dataset& data,
                                            std::string_view function);

}  // namespace fq::detail
