#include "fakequant/train/data/reader/array_file.h"
#include "reader.h"

void fq::fuzz::read_idx(const std::string& path) { (void)detail::open_idx(path).read_all(); }
