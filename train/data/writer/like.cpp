#include "fakequant/train/data/writer/like.h"

#include "fakequant/core/io/detail/hdf5_reader.h"
#include "fakequant/train/data/detail/data_file.h"

namespace fq::detail {

LikeData read_like(const std::string& path) {
  const std::string group = data_groups(path).front();
  Hdf5DatasetOptions options;
  options.split = group;
  const DataFile data(path, options);
  const Hdf5Rows rows = data.open_x();
  const Shape& shape = rows.shape();
  const Hdf5Reader file(path);
  const auto numbers = [&](const char* name) {
    return file.numbers(data.name("x"), name).value_or(std::vector<double>());
  };
  const auto scale = numbers("scale");
  LikeData out{.sample = {shape.begin() + 1, shape.end()},
               .dtype = rows.dtype(),
               .classes = data.classes().names,
               .how = {.scale = scale.size() == 1 ? scale[0] : 0,
                       .mean = numbers("mean"),
                       .deviation = numbers("std")},
               .columns = {}};
  if (const auto columns = file.texts("/", "columns"))
    out.columns = columns->size() == 1 ? split_names(columns->front()) : *columns;
  return out;
}

}  // namespace fq::detail
