#include <iterator>

#include "fakequant/bench/row.h"

namespace fq::bench {

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (auto family : {kernel_rows, code_rows, step_rows, memory_rows, eval_rows, generate_rows, scaling_rows,
                      busy_rows, loader_rows, calib_rows, weight_range_rows, calibration_rows})
    for (Row& row : family()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace fq::bench
