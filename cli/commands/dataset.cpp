#include "fakequant/cli/commands/dataset.h"

namespace fq::cli {

const std::vector<Command>& dataset_commands() {
  static const std::vector<Command> table = {
      {"dataset from-images", "of a folder of images, a folder for each class", from_images_flags,
       from_images, nullptr},
      {"dataset from-npy", "of NumPy arrays, .npy or .npz", from_npy_flags, from_npy, nullptr},
      {"dataset from-idx", "of IDX files, as MNIST comes", from_idx_flags, from_idx, nullptr},
      {"dataset from-csv", "of a table of numbers", from_csv_flags, from_csv, nullptr},
      {"dataset from-text", "of texts, as tokens", from_text_flags, from_text, nullptr},
      {"dataset from-parquet", "of a Parquet file: a table, or images", from_parquet_flags, from_parquet,
       nullptr},
      {"dataset check", "what a data set holds, and what may be wrong with it", check_data_flags, check_data,
       nullptr},
      {"dataset show", "a page or a picture of samples of each class", show_data_flags, show_data, nullptr},
  };
  return table;
}

}  // namespace fq::cli
