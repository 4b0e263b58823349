#include "fakequant/layers/model/model_file.h"
#include "reader.h"

void fq::fuzz::read_model(const std::string& path) {
  const ModelSpec spec = ModelSpec::load(path);
  (void)build_model(ModelSpec::parse(spec.text()), {1, 8, 8}, 4, {.max_elements = 1 << 16});
}
