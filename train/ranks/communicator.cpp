#include "fakequant/train/ranks/communicator.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include <unistd.h>

#include "fakequant/core/tensor.h"

namespace fq {
namespace {

// Launchers (Open MPI, Slurm with PMI or PMIx, MVAPICH) set different variables; the first one that is set
// counts.
int environment_number(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr) return std::atoi(value);
  return otherwise;
}

/// Returns the number of tasks of `node` in a list like "4(x2),3"; 0 if the list is shorter.
int tasks_of_node(const char* list, int node) {
  for (const char* at = list; at != nullptr && *at != '\0';) {
    char* end = nullptr;
    const auto tasks = std::strtol(at, &end, 10);
    const bool several = end[0] == '(' && end[1] == 'x';
    const auto nodes = several ? std::strtol(end + 2, &end, 10) : 1;
    if (node < nodes) return static_cast<int>(tasks);
    node -= static_cast<int>(nodes);
    at = std::strchr(end, ',');
    if (at != nullptr) ++at;
  }
  return 0;
}

class OneRank final : public Communicator {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 1; }
  void max(std::span<std::int64_t>) override {}
  void sum(std::span<std::int64_t>) override {}
  void sum(std::span<float>) override {}
  void sum(std::span<bfloat16>) override {}
  [[nodiscard]] std::vector<std::string> gather(const std::string& text) override { return {text}; }
  [[nodiscard]] std::int64_t bytes() const noexcept override { return 0; }
};

}  // namespace

void Communicator::sum_where_it_lies(Tensor& values) {
  if (size() == 1) return;
  // Without GPU communication, values take the way over the host.
  Tensor here = values.to(Device::cpu());
  sum(std::span(here.mutable_data<std::int64_t>(), static_cast<std::size_t>(here.numel())));
  if (!values.device().is_cpu()) values.copy_from(here);
}

std::shared_ptr<Communicator> one_rank() { return std::make_shared<OneRank>(); }

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

Launched launched() {
  Launched out;
  out.rank = environment_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"}, 0);
  // PMIx sets no size, so that it comes from Slurm. SLURM_STEP_NUM_TASKS is also set in steps without MPI.
  const int slurm_ranks =
      std::getenv("PMIX_RANK") != nullptr ? environment_number({"SLURM_STEP_NUM_TASKS"}, 1) : 1;
  out.ranks = environment_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}, slurm_ranks);
  out.rank_here = environment_number(
      {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"},
      out.rank);
  const int node_ranks =
      tasks_of_node(std::getenv("SLURM_STEP_TASKS_PER_NODE"), environment_number({"SLURM_NODEID"}, 0));
  out.ranks_here =
      environment_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"},
                         node_ranks > 0 ? node_ranks : out.ranks);
  return out;
}

}  // namespace fq
