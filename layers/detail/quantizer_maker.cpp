#include "fakequant/layers/detail/quantizer_maker.h"

#include <utility>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/layers/config/detail/merged_rules.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq::detail {
namespace {

bool keeps_one_axis(const PartialQuantParams& fields) {
  return fields.axis && fields.axis->has_value() && (*fields.axis)->values().size() == 1;
}

}  // namespace

std::shared_ptr<TensorQuantizer> QuantizerMaker::make_one(const PartialQuantParams& fields,
                                                          const std::string& name) const {
  QuantParams params;
  params.name = name;
  params.arithmetic = config_.arithmetic;
  params.pow2 = config_.pow2;
  apply(fields, params);
  return std::make_shared<TensorQuantizer>(std::move(params));
}

std::shared_ptr<TensorQuantizer> QuantizerMaker::make(const MergedRules& fields,
                                                      const std::string& name) const {
  // Errors name the rule of the config file, also if a field only fails together with others.
  return locate_errors(fields.place, [&]() -> std::shared_ptr<TensorQuantizer> {
    if (fields.all.sequence.empty()) return make_one(fields.all, name);
    std::vector<std::shared_ptr<TensorQuantizer>> parts;
    for (const auto& part : fields.all.sequence)
      parts.push_back(make_one(part, fmt::format("{}.{}", name, parts.size())));
    for (const auto& part : parts)
      FQ_CHECK(part->params().weight_scheme != &binary_weights(), "quantize",
               "'{}' is binary within a sequence: use its fields alone, or leave binary out", name);
    auto out = std::make_shared<SequentialQuantizer>(std::move(parts));
    out->set_name(name);
    return out;
  });
}

std::shared_ptr<TensorQuantizer> QuantizerMaker::weight(MergedRules fields, const std::string& name,
                                                        int axis) const {
  // Presets write axis 0, but transposed convolutions have their channels along axis 1.
  if (!fields.by_user.axis && keeps_one_axis(fields.all)) {
    fields.all.axis.reset();
    if (axis >= 0) fields.all.axis = Axes(axis);
  }
  return make(fields, name);
}

std::shared_ptr<TensorQuantizer> QuantizerMaker::input(const MergedRules& fields, const UsedTensor& tensor,
                                                       const std::string& name,
                                                       std::vector<std::string>& warnings) const {
  FQ_CHECK(!fields.all.binary || !fields.all.binary->value_or(false), "quantize",
           "'{}' is binary: that is for weights, use num_bits 2 or leave binary out", name);
  auto quantizer = make(with_sign(fields, tensor, name, warnings), name);
  set_algorithm(*quantizer, fields.all);
  const QuantDescriptor& descriptor = quantizer->descriptor();
  const bool plain = engine_.stores_unsigned_bytes() && fields.all.sequence.empty() && !fields.has_blocks();
  // Signed codes are stored as unsigned bytes: code + 128.
  const bool offset = plain && descriptor.format().is_integer() && !descriptor.is_unsigned();
  // A user's sign is final; otherwise calibration may find that no value is negative.
  quantizer->update([&](QuantParams& params) {
    params.zero_point = offset ? 128 : 0;
    params.may_become_unsigned = plain && !fields.by_user.is_unsigned;
  });
  return quantizer;
}

/// Sets the config's algorithm, unless a rule gives a calib_method, which is more specific.
void QuantizerMaker::set_algorithm(TensorQuantizer& quantizer, const PartialQuantParams& fields) const {
  const auto parts = quantizer_parts(quantizer);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const PartialQuantParams& own = fields.sequence.empty() ? fields : fields.sequence[i];
    if (!own.calib_method) set_calib_method(*parts[i], config_.algorithm);
  }
}

/// Makes codes unsigned if the target prefers it. A user's explicit sign wins, with a warning.
MergedRules QuantizerMaker::with_sign(MergedRules fields, const UsedTensor& tensor, const std::string& name,
                                      std::vector<std::string>& warnings) const {
  if (!fields.all.sequence.empty()) return fields;
  const NumBits bits = fields.all.num_bits.value_or(std::nullopt).value_or(NumBits());
  const std::optional<bool> preferred = engine_.prefers_unsigned(tensor);
  const bool wanted = preferred.value_or(false) && bits.is_integer() && !fields.has_blocks();
  const auto& by_user = fields.by_user.is_unsigned;
  if (!by_user) {
    if (wanted) fields.all.is_unsigned = true;
  } else if (preferred && by_user->has_value() && **by_user != wanted) {
    warnings.push_back(fmt::format("'{}' is {} as configured, but the target {} prefers the opposite", name,
                                   wanted ? "signed" : "unsigned", fq::name(config_.target)));
  }
  return fields;
}

}  // namespace fq::detail
