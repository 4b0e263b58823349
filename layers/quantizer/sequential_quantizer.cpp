#include "fakequant/layers/quantizer/sequential_quantizer.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantizer/compress.h"

namespace fq {

SequentialQuantizer::SequentialQuantizer(std::vector<std::shared_ptr<TensorQuantizer>> parts) {
  FQ_CHECK(!parts.empty(), "sequential_quantizer", "there are no quantizers: use one or more");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    FQ_CHECK(parts[i] != nullptr, "sequential_quantizer", "quantizer {} is null", i);
    FQ_CHECK(i + 1 == parts.size() || parts[i]->descriptor().fake_quant(), "sequential_quantizer",
             "quantizer {} gives codes: only the last one can, set its fake_quant", i);
    parts_.push_back(add_module(std::to_string(i), parts[i]));
  }
}

std::string SequentialQuantizer::describe() const { return fmt::format("{} quantizers", parts_.size()); }

std::vector<TensorQuantizer*> SequentialQuantizer::parts() const {
  std::vector<TensorQuantizer*> out;
  for (const auto& part : parts_) out.push_back(part.get());
  return out;
}

Variable SequentialQuantizer::weight(const Variable& w) {
  if (holds_codes(w)) {
    // Packed codes are the result of the whole sequence.
    const Variable codes = coding_part(*this).weight(w);
    return enabled() ? codes : codes.as_float();
  }
  if (!enabled()) return w;
  Variable out = parts_.front()->weight(w);
  // Only the first part sees the parameter and can cache its codes.
  for (std::size_t i = 1; i < parts_.size(); ++i) out = parts_[i]->weight(out);
  return out;
}

bool SequentialQuantizer::keeps_weight(const Variable& /*w*/) const { return false; }

Variable SequentialQuantizer::forward(const Variable& x) {
  if (!enabled()) return x;
  Variable out = x;
  for (const auto& part : parts_) out = part(out);
  return out;
}

std::vector<TensorQuantizer*> quantizer_parts(TensorQuantizer& quantizer) {
  auto* sequence = dynamic_cast<SequentialQuantizer*>(&quantizer);
  return sequence != nullptr ? sequence->parts() : std::vector<TensorQuantizer*>{&quantizer};
}

TensorQuantizer& coding_part(TensorQuantizer& quantizer) {
  const auto parts = quantizer_parts(quantizer);
  // The last enabled part determines the codes.
  const auto last = std::find_if(parts.rbegin(), parts.rend(), [](auto* part) { return part->enabled(); });
  return last != parts.rend() ? **last : *parts.back();
}

}  // namespace fq
