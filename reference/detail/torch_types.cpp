#include "fakequant/reference/detail/torch_types.h"

#include <map>

namespace fq::detail {

std::optional<DType> dtype_of_torch(std::string_view name) {
  // "float8" is the name of E4M3 in Tripy (golden/README, onnx.h5).
  static const std::map<std::string_view, DType> names{{"float32", DType::f32},
                                                       {"float64", DType::f64},
                                                       {"float16", DType::f16},
                                                       {"bfloat16", DType::bf16},
                                                       {"int8", DType::i8},
                                                       {"uint8", DType::u8},
                                                       {"int16", DType::i16},
                                                       {"uint16", DType::u16},
                                                       {"int32", DType::i32},
                                                       {"int64", DType::i64},
                                                       {"int2", DType::i2},
                                                       {"uint2", DType::u2},
                                                       {"int4", DType::i4},
                                                       {"uint4", DType::u4},
                                                       {"uint1", DType::u1},
                                                       {"float8", DType::f8_e4m3},
                                                       {"float8_e4m3fn", DType::f8_e4m3},
                                                       {"float8_e5m2", DType::f8_e5m2},
                                                       {"float8_e8m0fnu", DType::f8_e8m0},
                                                       {"float4_e2m1", DType::f4_e2m1}};
  constexpr std::string_view prefix = "torch.";
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  const auto found = names.find(name);
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace fq::detail
