#include "fakequant/export/tensorrt_cache.h"
#include "reader.h"

void fq::fuzz::read_tensorrt(const std::string& path) { (void)load_tensorrt_cache(path); }
