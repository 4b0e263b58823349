#include <charconv>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao {

IntegerType IntegerType::named(std::string_view name) {
  IntegerType type{0, name.starts_with('u')};
  const std::string_view stem = type.is_unsigned ? "uint" : "int";
  if (name.starts_with(stem)) {
    const std::string_view bits = name.substr(stem.size());
    const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), type.bits);
    if (error != std::errc() || end != bits.data() + bits.size()) type.bits = 0;
  }
  const bool wide = !type.is_unsigned && (type.bits == 16 || type.bits == 32);
  FQ_CHECK((type.bits >= 1 && type.bits <= 8) || wide, "torchao",
           "the dtype '{}' is none to quantize to: use int1 to int8, uint1 to uint8, int16 or int32", name);
  return type;
}

std::string IntegerType::name() const { return fmt::format("{}int{}", is_unsigned ? "u" : "", bits); }

MappingType mapping_type(std::string_view name) {
  if (name == "SYMMETRIC") return MappingType::symmetric;
  if (name == "SYMMETRIC_NO_CLIPPING_ERR") return MappingType::symmetric_no_clipping_err;
  FQ_CHECK(name == "ASYMMETRIC", "torchao",
           "the mapping '{}': use SYMMETRIC, SYMMETRIC_NO_CLIPPING_ERR or ASYMMETRIC", name);
  return MappingType::asymmetric;
}

ZeroPointDomain zero_point_domain(std::string_view name) {
  if (name == "INT") return ZeroPointDomain::integer;
  if (name == "FLOAT") return ZeroPointDomain::floating;
  FQ_CHECK(name == "NONE", "torchao", "the zero point domain '{}': use INT, FLOAT or NONE", name);
  return ZeroPointDomain::none;
}

}  // namespace fq::torchao
