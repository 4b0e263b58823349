#include <limits>
#include <nlohmann/json.hpp>

#include "fakequant/core/descriptor.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/text.h"

namespace fq {
namespace {

using nlohmann::json;
constexpr const char* kDescriptorJson = "quant_descriptor";

json bits_to_json(const NumBits& bits) {
  return bits.is_integer() ? json(bits.bits()) : json::array({bits.exponent(), bits.mantissa()});
}

json lengths_to_json(const std::map<int, std::int64_t>& lengths) {
  json out = json::object();
  for (const auto& [axis, length] : lengths) out[std::to_string(axis)] = length;
  return out;
}

json blocks_to_json(const BlockSizes& blocks) {
  json out = lengths_to_json(blocks.lengths);
  if (blocks.type == BlockType::dynamic) out["type"] = "dynamic";
  if (blocks.scale_bits) out["scale_bits"] = bits_to_json(*blocks.scale_bits);
  if (!blocks.scale_block_sizes.empty()) out["scale_block_sizes"] = lengths_to_json(blocks.scale_block_sizes);
  return out;
}

/// Lists nested as the shape says; a number for rank 0.
json nested(const float*& next, const Shape& shape, std::size_t axis) {
  if (axis == shape.size()) return static_cast<double>(*next++);
  json out = json::array();
  for (std::int64_t i = 0; i < shape[axis]; ++i) out.push_back(nested(next, shape, axis + 1));
  return out;
}

[[noreturn]] void wrong_type(std::string_view key, const json& value, std::string_view allowed) {
  throw ArgumentError(fmt::format("[{}] {} is {}: give {}", kDescriptorJson, key, value.dump(), allowed));
}

template <class Integer = int>
Integer read_integer(std::string_view key, const json& value, std::string_view allowed) {
  using Limits = std::numeric_limits<Integer>;
  if (!value.is_number_integer()) wrong_type(key, value, allowed);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{Limits::max()})
    wrong_type(key, value, allowed);
  const auto wide = value.get<std::int64_t>();
  if (wide < Limits::min() || wide > Limits::max()) wrong_type(key, value, allowed);
  return static_cast<Integer>(wide);
}

bool read_bool(std::string_view key, const json& value) {
  if (!value.is_boolean()) wrong_type(key, value, "true or false");
  return value.get<bool>();
}

std::string read_string(std::string_view key, const json& value) {
  if (!value.is_string()) wrong_type(key, value, "a string");
  return value.get<std::string>();
}

NumBits read_bits(std::string_view key, const json& value) {
  constexpr const char* allowed = "a number of bits, or [exponent, mantissa]";
  if (!value.is_array()) return read_integer(key, value, allowed);
  if (value.size() != 2) wrong_type(key, value, allowed);
  return {read_integer(key, value[0], allowed), read_integer(key, value[1], allowed)};
}

Axes read_axes(const json& value) {
  constexpr const char* allowed = "an axis, a list of axes, or null";
  if (value.is_null()) return {};
  if (!value.is_array()) return read_integer("axis", value, allowed);
  std::vector<int> axes;
  for (const auto& item : value) axes.push_back(read_integer("axis", item, allowed));
  return axes;
}

void read_length(std::map<int, std::int64_t>& lengths, const std::string& key, const json& value) {
  char* end = nullptr;
  const long axis = std::strtol(key.c_str(), &end, 10);
  if (key.empty() || *end != '\0' || axis < -64 || axis > 64)
    wrong_type("block_sizes", key, "an axis with a length, type, scale_bits or scale_block_sizes");
  lengths[static_cast<int>(axis)] =
      value.is_null()
          ? Granularity::whole
          : read_integer<std::int64_t>("block_sizes", value, "a length, or -1 or null for the whole axis");
}

std::map<int, std::int64_t> read_lengths(std::string_view key, const json& value) {
  if (!value.is_object()) wrong_type(key, value, "an object of axis: length");
  std::map<int, std::int64_t> lengths;
  for (const auto& [axis, length] : value.items()) read_length(lengths, axis, length);
  return lengths;
}

BlockType read_type(const json& value) {
  if (value == "dynamic") return BlockType::dynamic;
  if (value != "static") wrong_type("type of block_sizes", value, "\"static\" or \"dynamic\"");
  return BlockType::fixed;
}

BlockSizes read_blocks(const json& value) {
  BlockSizes blocks;
  if (value.is_null()) return blocks;
  if (!value.is_object()) wrong_type("block_sizes", value, "an object of axis: length");
  for (const auto& [key, item] : value.items()) {
    if (key == "type")
      blocks.type = read_type(item);
    else if (key == "scale_bits")
      blocks.scale_bits = read_bits(key, item);
    else if (key == "scale_block_sizes")
      blocks.scale_block_sizes = read_lengths(key, item);
    else
      read_length(blocks.lengths, key, item);
  }
  return blocks;
}

void flatten(const json& value, std::size_t depth, Shape& shape, std::vector<double>& values) {
  if (value.is_number() && depth == shape.size()) return values.push_back(value.get<double>());
  if (!value.is_array() || depth > 16)
    wrong_type("amax", value, "a number, a list, or lists of equal length");
  if (depth == shape.size() && values.empty()) shape.push_back(static_cast<std::int64_t>(value.size()));
  if (depth >= shape.size() || shape[depth] != static_cast<std::int64_t>(value.size()))
    wrong_type("amax", value, "lists of equal length");
  for (const auto& item : value) flatten(item, depth + 1, shape, values);
}

Amax read_amax(const json& value) {
  if (value.is_null()) return {};
  Shape shape;
  std::vector<double> values;
  flatten(value, 0, shape, values);
  return Tensor::from(values, shape);
}

double read_number(std::string_view key, const json& value) {
  if (!value.is_number()) wrong_type(key, value, "a number");
  return value.get<double>();
}

using FieldReader = void (*)(QuantDescriptorOptions&, const json&);
constexpr std::pair<std::string_view, FieldReader> kReaders[] = {
    {"num_bits", [](auto& o, const json& v) { o.num_bits = read_bits("num_bits", v); }},
    {"name", [](auto& o, const json& v) { o.name = v.is_null() ? "" : read_string("name", v); }},
    {"fake_quant", [](auto& o, const json& v) { o.fake_quant = read_bool("fake_quant", v); }},
    {"axis", [](auto& o, const json& v) { o.axis = read_axes(v); }},
    {"block_sizes", [](auto& o, const json& v) { o.block_sizes = read_blocks(v); }},
    {"amax", [](auto& o, const json& v) { o.amax = read_amax(v); }},
    {"learn_amax", [](auto& o, const json& v) { o.learn_amax = read_bool("learn_amax", v); }},
    {"scale_amax",
     [](auto& o, const json& v) {
       if (!v.is_null()) o.scale_amax = read_number("scale_amax", v);
     }},
    {"calib_method", [](auto& o, const json& v) { o.calib_method = read_string("calib_method", v); }},
    {"unsigned", [](auto& o, const json& v) { o.is_unsigned = read_bool("unsigned", v); }},
    {"narrow_range", [](auto& o, const json& v) { o.narrow_range = read_bool("narrow_range", v); }},
    {"dynamic", [](auto& o, const json& v) { o.dynamic = read_bool("dynamic", v); }},
};

void read_field(QuantDescriptorOptions& options, const std::string& key, const json& value) {
  for (const auto& [name, read] : kReaders)
    if (name == key) return read(options, value);
  std::vector<std::string> names;
  for (const auto& [name, read] : kReaders) names.emplace_back(name);
  throw ArgumentError(fmt::format("[{}] '{}' is not a field of a descriptor{}", kDescriptorJson, key,
                                  detail::did_you_mean(key, names)));
}

}  // namespace

json QuantDescriptor::dict() const {
  const QuantDescriptorOptions defaults;
  json out = json::object();
  const auto& o = options_;
  if (o.num_bits != defaults.num_bits) out["num_bits"] = bits_to_json(o.num_bits);
  if (!o.name.empty()) out["name"] = o.name;
  if (!o.fake_quant) out["fake_quant"] = false;
  if (!o.axis.empty())
    out["axis"] = o.axis.values().size() == 1 ? json(o.axis.values()[0]) : json(o.axis.values());
  if (!o.block_sizes.empty()) out["block_sizes"] = blocks_to_json(o.block_sizes);
  if (o.amax.defined()) {
    const float* next = o.amax.values().data();
    out["amax"] = nested(next, o.amax.shape(), 0);
  }
  if (o.learn_amax) out["learn_amax"] = true;
  if (o.scale_amax) out["scale_amax"] = *o.scale_amax;
  if (o.calib_method != defaults.calib_method) out["calib_method"] = o.calib_method;
  if (o.is_unsigned) out["unsigned"] = true;
  if (o.narrow_range) out["narrow_range"] = true;
  if (o.dynamic) out["dynamic"] = true;
  return out;
}

QuantDescriptor QuantDescriptor::from_dict(const json& dict) {
  if (!dict.is_object()) wrong_type("the descriptor", dict, "an object of field: value");
  QuantDescriptorOptions options;
  for (const auto& [key, value] : dict.items()) read_field(options, key, value);
  return QuantDescriptor(std::move(options));
}

std::string QuantDescriptor::to_json() const { return dict().dump(); }

QuantDescriptor QuantDescriptor::from_json(std::string_view text) {
  try {
    return from_dict(detail::parse_json<json>(text));
  } catch (const json::parse_error& error) {
    throw ArgumentError(
        fmt::format("[{}] the text is not JSON at byte {}: {}", kDescriptorJson, error.byte, error.what()));
  } catch (const json::exception& error) {
    throw ArgumentError(
        fmt::format("[{}] the text has what JSON cannot hold: {}", kDescriptorJson, error.what()));
  }
}

}  // namespace fq
