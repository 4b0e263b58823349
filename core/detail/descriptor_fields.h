#pragma once

/// The list of fields of a QuantDescriptor. Code that reads, writes, merges or compares fields visits them
/// here.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/descriptor.h"

namespace fq::detail {

/// Calls `visit(name, member..)` for each field, with the member of each of `options`:
/// QuantDescriptorOptions, or a class with the same members.
template <class Visit, class... Options>
void visit_descriptor_fields(Visit&& visit, Options&&... options) {
  visit("num_bits", options.num_bits...);
  visit("name", options.name...);
  visit("fake_quant", options.fake_quant...);
  visit("axis", options.axis...);
  visit("block_sizes", options.block_sizes...);
  visit("amax", options.amax...);
  visit("learn_amax", options.learn_amax...);
  visit("scale_amax", options.scale_amax...);
  visit("calib_method", options.calib_method...);
  visit("unsigned", options.is_unsigned...);
  visit("narrow_range", options.narrow_range...);
  visit("dynamic", options.dynamic...);
}

/// Read the value of the field `name`. Throw ArgumentError that names the field and the allowed values.
void read_field(std::string_view name, const nlohmann::json& value, NumBits& out);
void read_field(std::string_view name, const nlohmann::json& value, std::string& out);
void read_field(std::string_view name, const nlohmann::json& value, bool& out);
void read_field(std::string_view name, const nlohmann::json& value, double& out);
void read_field(std::string_view name, const nlohmann::json& value, Axes& out);
void read_field(std::string_view name, const nlohmann::json& value, BlockSizes& out);
void read_field(std::string_view name, const nlohmann::json& value, Amax& out);

/// Throws ArgumentError for a `key` that is neither a field nor in `more`. The message names the nearest
/// key.
[[noreturn]] void unknown_field(const std::string& key, std::vector<std::string> more = {});

}  // namespace fq::detail
