#include "fakequant/export/onnx/writer/path_names.h"

#include "fakequant/layers/quantize.h"

namespace fq::detail {

PathNames::PathNames(Module& model) {
  for (const auto& entry : named_quantizers(model)) {
    if (entry.quantizer->name() == entry.name) continue;
    before_.emplace_back(entry.quantizer, entry.quantizer->name());
    entry.quantizer->set_name(entry.name);
  }
}

PathNames::~PathNames() {
  for (auto& [quantizer, name] : before_) quantizer->set_name(std::move(name));
}

}  // namespace fq::detail
