#include "fakequant/train/data/writer/like.h"

#include <utility>

#include "fakequant/train/data/detail/data_file.h"

namespace fq::detail {

LikeData read_like(const std::string& path) {
  const std::string group = data_groups(path).front();
  Hdf5DatasetOptions options;
  options.split = group;
  const DataFile data(path, options);
  const Hdf5Rows rows = data.open_x();
  const Shape& shape = rows.shape();
  SampleNotes notes = data.notes();
  return {.sample = {shape.begin() + 1, shape.end()},
          .dtype = rows.dtype(),
          .classes = data.classes().names,
          .how = {.scale = notes.scale, .mean = notes.mean, .deviation = notes.deviation},
          .columns = std::move(notes.columns)};
}

}  // namespace fq::detail
