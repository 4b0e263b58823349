#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/quantize.h"
#include "reader.h"

void fq::fuzz::read_config(const std::string& path) {
  const QuantConfig config = QuantConfig::parse(read_file(path));
  const auto model = build_model(ModelSpec::builtin("cnn", R"({"widths": [2, 2, 2]})"), {1, 8, 8}, 4);
  (void)quantize(*model, config, {1, 1, 8, 8});
}
