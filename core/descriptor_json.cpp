#include <limits>
#include <nlohmann/json.hpp>

#include "fakequant/core/descriptor.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/descriptor_fields.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq {
namespace {

using nlohmann::json;
constexpr const char* kDescriptorJson = "quant_descriptor";

// One overload per field type. `visit_descriptor_fields` lists the fields once for writing, reading and
// messages.
json field_json(const NumBits& bits) {
  return bits.is_integer() ? json(bits.bits()) : json::array({bits.exponent(), bits.mantissa()});
}

json field_json(const std::map<int, std::int64_t>& lengths) {
  json out = json::object();
  for (const auto& [axis, length] : lengths) out[std::to_string(axis)] = length;
  return out;
}

json field_json(const BlockSizes& blocks) {
  json out = field_json(blocks.lengths);
  if (blocks.type == BlockType::dynamic) out["type"] = "dynamic";
  if (blocks.scale_bits) out["scale_bits"] = field_json(*blocks.scale_bits);
  if (!blocks.scale_block_sizes.empty()) out["scale_block_sizes"] = field_json(blocks.scale_block_sizes);
  return out;
}

/// Lists nested as the shape says; a number for rank 0.
json nested(const float*& next, const Shape& shape, std::size_t axis) {
  if (axis == shape.size()) return static_cast<double>(*next++);
  json out = json::array();
  for (std::int64_t i = 0; i < shape[axis]; ++i) out.push_back(nested(next, shape, axis + 1));
  return out;
}

json field_json(const Amax& amax) {
  const float* next = amax.values().data();
  return nested(next, amax.shape(), 0);
}

json field_json(const Axes& axes) {
  // The seed's form: a number for one axis.
  return axes.values().size() == 1 ? json(axes.values()[0]) : json(axes.values());
}

json field_json(const std::optional<double>& number) { return *number; }
json field_json(const std::string& text) { return text; }
json field_json(bool yes) { return yes; }

[[noreturn]] void wrong_type(std::string_view key, const json& value, std::string_view allowed) {
  throw ArgumentError(fmt::format("[{}] {} is {}: use {}", kDescriptorJson, key, value.dump(), allowed));
}

template <class Integer = int>
Integer read_integer(std::string_view key, const json& value, std::string_view allowed) {
  const auto whole = detail::whole_if<Integer>(value);
  if (!whole) wrong_type(key, value, allowed);
  return *whole;
}

NumBits read_bits(std::string_view key, const json& value) {
  constexpr const char* allowed = "a number of bits, or [exponent, mantissa]";
  if (!value.is_array()) return read_integer(key, value, allowed);
  if (value.size() != 2) wrong_type(key, value, allowed);
  return {read_integer(key, value[0], allowed), read_integer(key, value[1], allowed)};
}

// JSON keys are text, Python's are integers: both forms arrive here as text.
void read_length(std::map<int, std::int64_t>& lengths, const std::string& key, const json& value) {
  char* end = nullptr;
  const long axis = std::strtol(key.c_str(), &end, 10);
  if (key.empty() || *end != '\0' || axis < -64 || axis > 64)
    wrong_type("block_sizes", key, "an axis with a length, type, scale_bits or scale_block_sizes");
  // null is ModelOpt's and Python's None: a block as long as its axis.
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

void read_part(BlockSizes& blocks, const std::string& key, const json& value) {
  if (key == "type")
    blocks.type = read_type(value);
  else if (key == "scale_bits")
    blocks.scale_bits = read_bits(key, value);
  else if (key == "scale_block_sizes")
    blocks.scale_block_sizes = read_lengths(key, value);
  else
    read_length(blocks.lengths, key, value);
}

// Appends the numbers of nested lists in row-major order. The first path to a number sets the shape, and all
// other lists must fit it. The depth is limited because the text comes from users.
void flatten(const json& value, std::size_t depth, Shape& shape, std::vector<double>& values) {
  if (value.is_number() && depth == shape.size()) return values.push_back(value.get<double>());
  if (!value.is_array() || depth > 16)
    wrong_type("amax", value, "a number, a list, or lists of equal length");
  if (depth == shape.size() && values.empty()) shape.push_back(static_cast<std::int64_t>(value.size()));
  if (depth >= shape.size() || shape[depth] != static_cast<std::int64_t>(value.size()))
    wrong_type("amax", value, "lists of equal length");
  for (const auto& item : value) flatten(item, depth + 1, shape, values);
}

}  // namespace

namespace detail {

void read_field(std::string_view name, const json& value, NumBits& out) { out = read_bits(name, value); }

void read_field(std::string_view name, const json& value, std::string& out) {
  if (!value.is_string()) wrong_type(name, value, "a string");
  out = value.get<std::string>();
}

void read_field(std::string_view name, const json& value, bool& out) {
  if (!value.is_boolean()) wrong_type(name, value, "true or false");
  out = value.get<bool>();
}

void read_field(std::string_view name, const json& value, double& out) {
  if (!value.is_number()) wrong_type(name, value, "a number");
  out = value.get<double>();
}

void read_field(std::string_view name, const json& value, Axes& out) {
  constexpr const char* allowed = "an axis, a list of axes, or null";
  if (value.is_null()) return void(out = {});
  if (!value.is_array()) return void(out = read_integer(name, value, allowed));
  std::vector<int> axes;
  for (const auto& item : value) axes.push_back(read_integer(name, item, allowed));
  out = std::move(axes);
}

void read_field(std::string_view name, const json& value, BlockSizes& out) {
  out = {};
  if (value.is_null()) return;
  if (!value.is_object()) wrong_type(name, value, "an object of axis: length");
  for (const auto& [key, item] : value.items()) read_part(out, key, item);
}

void read_field(std::string_view, const json& value, Amax& out) {
  out = {};
  if (value.is_null()) return;
  Shape shape;
  std::vector<double> values;
  flatten(value, 0, shape, values);
  // f64 values become f32 in Amax, as torch.tensor does with Python's floats.
  out = Tensor::from(values, shape);
}

void unknown_field(const std::string& key, std::vector<std::string> more) {
  visit_descriptor_fields([&](const char* name, const auto&) { more.emplace_back(name); },
                          QuantDescriptorOptions{});
  throw ArgumentError(fmt::format("[{}] '{}' is not a field of a descriptor{}", kDescriptorJson, key,
                                  did_you_mean(key, more)));
}

}  // namespace detail

namespace {

template <class T>
void read_nullable(std::string_view name, const json& value, T& out) {
  detail::read_field(name, value, out);
}

void read_nullable(std::string_view name, const json& value, std::optional<double>& out) {
  if (!value.is_null()) detail::read_field(name, value, out.emplace());
}

// Python writes a missing name as null; no other text may be null.
void read_nullable(std::string_view name, const json& value, std::string& out) {
  if (!(name == "name" && value.is_null())) detail::read_field(name, value, out);
}

}  // namespace

json QuantDescriptor::dict() const {
  json out = json::object();
  detail::visit_descriptor_fields(
      [&](const char* name, const auto& value, const auto& fallback) {
        // Default fields are left out, as in the seed's dict().
        if (!(value == fallback)) out[name] = field_json(value);
      },
      options_, QuantDescriptorOptions{});
  return out;
}

QuantDescriptor QuantDescriptor::from_dict(const json& dict) {
  if (!dict.is_object()) wrong_type("the descriptor", dict, "an object of field: value");
  QuantDescriptorOptions options;
  for (const auto& [key, value] : dict.items()) {
    // An unknown field is an error: a misspelled option must not be ignored.
    bool known = false;
    detail::visit_descriptor_fields(
        [&, &key = key, &value = value](std::string_view name, auto& field) {
          if (name != key) return;
          read_nullable(name, value, field);
          known = true;
        },
        options);
    if (!known) detail::unknown_field(key);
  }
  return QuantDescriptor(std::move(options));
}

std::string QuantDescriptor::to_json() const { return dict().dump(); }

QuantDescriptor QuantDescriptor::from_json(std::string_view text) {
  try {
    // Both kinds of failure become ArgumentError: nlohmann's exceptions are not part of the interface.
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
