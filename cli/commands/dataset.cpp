#include "fakequant/cli/commands/dataset.h"

namespace fq::cli {

const std::vector<Command>& dataset_commands() {
  static const std::vector<Command> table = {
      {"dataset from-images", "of a folder of images, a folder for each class",
       by_flags(from_images_flags, from_images)},
      {"dataset from-npy", "of NumPy arrays, .npy or .npz", by_flags(from_npy_flags, from_npy)},
      {"dataset from-idx", "of IDX files, as MNIST comes", by_flags(from_idx_flags, from_idx)},
      {"dataset from-csv", "of a table of numbers", by_flags(from_csv_flags, from_csv)},
      {"dataset from-text", "of texts, as tokens", by_flags(from_text_flags, from_text)},
      {"dataset from-parquet", "of a Parquet file: a table, or images",
       by_flags(from_parquet_flags, from_parquet)},
      {"dataset check", "what a data set holds, and what may be wrong with it",
       by_flags(check_data_flags, check_data)},
      {"dataset show", "a page or a picture of samples of each class", by_flags(show_data_flags, show_data)},
  };
  return table;
}

}  // namespace fq::cli
