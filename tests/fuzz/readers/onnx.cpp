#include "fakequant/export/onnx/import.h"
#include "fakequant/export/onnx/import_quantized.h"
#include "fakequant/export/onnx/model.h"
#include "reader.h"

void fq::fuzz::read_onnx(const std::string& path) {
  const OnnxModel file = load_onnx(path);
  const ImportOptions options{.sample_shape = {1, 8, 8}};
  if (is_quantized(file))
    (void)import_quantized_onnx(file, options);
  else
    (void)import_onnx(file, options);
}
