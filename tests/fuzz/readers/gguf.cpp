#include "fakequant/export/gguf/file.h"
#include "fakequant/export/gguf/import.h"
#include "reader.h"

void fq::fuzz::read_gguf(const std::string& path) {
  const GgufModel file = load_gguf(path);
  (void)gguf_tokenizer(file, path);
  (void)import_gguf(file, {.sample_shape = {4}}, path);
}
