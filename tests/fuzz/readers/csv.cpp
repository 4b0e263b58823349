#include <vector>

#include "fakequant/train/data/reader/csv_source.h"
#include "reader.h"

void fq::fuzz::read_csv(const std::string& path) {
  detail::CsvOptions options;
  options.label = "kind";
  options.one_hot = {"colour"};
  options.missing = detail::Missing::mean;
  detail::CsvSource table(path, options);
  std::vector<float> row(std::size_t(numel(table.type().shape)));
  for (std::int64_t i = 0; i < table.size(); ++i)
    (void)table.read(i, reinterpret_cast<std::byte*>(row.data()));
}
