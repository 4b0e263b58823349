#include "fakequant/cli/tables/sample_noun.h"

namespace fq::cli {

std::string sample_noun(const Dataset& data) {
  if (data.token_ids()) return "windows";
  return data.sample_shape().size() == 3 ? "images" : "samples";
}

}  // namespace fq::cli
