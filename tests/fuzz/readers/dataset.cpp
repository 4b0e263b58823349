#include <algorithm>
#include <numeric>
#include <vector>

#include "fakequant/train/data/hdf5_dataset.h"
#include "reader.h"

void fq::fuzz::read_dataset(const std::string& path) {
  const Hdf5Dataset data(path, {.may_lack_labels = true});
  std::vector<std::int64_t> rows(std::size_t(std::min<std::int64_t>(data.size(), 64)));
  std::iota(rows.begin(), rows.end(), 0);
  (void)data.read(rows);
}
