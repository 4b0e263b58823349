#include "fakequant/layers/config/quant_fields.h"

#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/descriptor_fields.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/config/detail/quantizer_fields.h"

namespace fq {
namespace {

using nlohmann::json;

bool boolean(const char* key, const json& value) {
  FQ_CHECK(value.is_boolean(), "quantize", "'{}' is {}: use true or false", key, value.dump());
  return value.get<bool>();
}

template <class T>
void read_nullable(std::string_view name, const json& value, QuantFields::Field<T>& field) {
  field.emplace();
  if (value.is_null()) return;
  T read{};
  detail::read_field(name, value, read);
  field = std::move(read);
}

AmaxGradient gradient_of(const json& value) {
  FQ_CHECK(value.is_string(), "quantize", "'amax_gradient' is {}: use \"clip\" or \"lsq\"", value.dump());
  return detail::amax_gradient_from_name(value.get<std::string>());
}

std::vector<QuantFields> sequence_of(const json& value) {
  FQ_CHECK(value.is_array() && !value.empty(), "quantize", "'sequence' is {}: give a list of fields",
           value.dump());
  std::vector<QuantFields> out;
  for (const auto& part : value) {
    FQ_CHECK(part.is_object(), "quantize", "'sequence' has {}: give objects of fields", part.dump());
    detail::at_place(fmt::format("/{}", out.size()), [&] { out.push_back(QuantFields::from_dict(part)); });
  }
  return out;
}

using Reader = void (*)(QuantFields&, const json&);
/// What is the quantizer's, not its descriptor's.
constexpr std::pair<const char*, Reader> kOwn[] = {
    {"enable", [](QuantFields& f, const json& v) { f.enable = boolean("enable", v); }},
    {"pass_through_bwd",
     [](QuantFields& f, const json& v) {
       f.pass_through_bwd.emplace();
       if (!v.is_null()) f.pass_through_bwd = boolean("pass_through_bwd", v);
     }},
    {"binary",
     [](QuantFields& f, const json& v) {
       f.binary.emplace();
       if (!v.is_null()) f.binary = boolean("binary", v);
     }},
    {"amax_gradient", [](QuantFields& f, const json& v) { f.amax_gradient = gradient_of(v); }},
    {"sequence", [](QuantFields& f, const json& v) { f.sequence = sequence_of(v); }},
};

bool read_own(QuantFields& fields, const std::string& key, const json& value) {
  for (const auto& [name, read] : kOwn)
    if (key == name) return read(fields, value), true;
  return false;
}

bool read_descriptor(QuantFields& fields, const std::string& key, const json& value) {
  bool known = false;
  detail::for_each_descriptor_field(
      [&](std::string_view name, auto& field) {
        if (name != key) return;
        read_nullable(name, value, field);
        known = true;
      },
      fields);
  return known;
}

void read(QuantFields& fields, const std::string& key, const json& value) {
  if (read_own(fields, key, value) || read_descriptor(fields, key, value)) return;
  std::vector<std::string> own;
  for (const auto& [name, reader] : kOwn) own.emplace_back(name);
  detail::unknown_field(key, std::move(own));
}

}  // namespace

QuantFields QuantFields::from_dict(const json& dict) {
  FQ_CHECK(dict.is_object(), "quantize", "the fields are {}: give an object of field: value", dict.dump());
  QuantFields out;
  for (const auto& [key, value] : dict.items())
    detail::at_place("/" + detail::json_pointer_token(key),
                     [&, &key = key, &value = value] { read(out, key, value); });
  return out;
}

}  // namespace fq
