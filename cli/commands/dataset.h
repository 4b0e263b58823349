#pragma once

/// The commands `fakequant dataset ..`.

#include "fakequant/cli/command.h"

namespace fq::cli {

FlagSet from_images_flags();
nlohmann::ordered_json from_images(const Flags& flags, Output& output);
FlagSet from_npy_flags();
nlohmann::ordered_json from_npy(const Flags& flags, Output& output);
FlagSet from_idx_flags();
nlohmann::ordered_json from_idx(const Flags& flags, Output& output);
FlagSet from_csv_flags();
nlohmann::ordered_json from_csv(const Flags& flags, Output& output);
FlagSet from_text_flags();
nlohmann::ordered_json from_text(const Flags& flags, Output& output);
FlagSet from_parquet_flags();
nlohmann::ordered_json from_parquet(const Flags& flags, Output& output);
FlagSet check_data_flags();
nlohmann::ordered_json check_data(const Flags& flags, Output& output);
FlagSet show_data_flags();
nlohmann::ordered_json show_data(const Flags& flags, Output& output);

}  // namespace fq::cli
