#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "fakequant/train/ranks/communicator.h"

namespace fq::launched_test {
namespace {

/// While it lives the environment has these variables.
class Variables {
 public:
  explicit Variables(std::map<std::string, std::string> variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  Variables(const Variables&) = delete;  // tied to its block
  Variables& operator=(const Variables&) = delete;

 private:
  std::map<std::string, std::string> variables_;
};

void expect(const Launched& found, int rank, int ranks, int rank_here, int ranks_here) {
  EXPECT_EQ(found.rank, rank);
  EXPECT_EQ(found.ranks, ranks);
  EXPECT_EQ(found.rank_here, rank_here);
  EXPECT_EQ(found.ranks_here, ranks_here);
}

/// Environment that srun --mpi=pmix sets for each task.
std::map<std::string, std::string> slurm(int task, int tasks, int node, int here,
                                         const std::string& of_nodes) {
  return {{"PMIX_RANK", std::to_string(task)},
          {"SLURM_STEP_NUM_TASKS", std::to_string(tasks)},
          {"SLURM_NODEID", std::to_string(node)},
          {"SLURM_LOCALID", std::to_string(here)},
          {"SLURM_STEP_TASKS_PER_NODE", of_nodes}};
}

TEST(Launched, IsOneProcessWithoutALauncher) { expect(launched(), 0, 1, 0, 1); }

TEST(Launched, DetectsEveryLauncher) {
  {
    const Variables open_mpi({{"OMPI_COMM_WORLD_RANK", "5"},
                              {"OMPI_COMM_WORLD_SIZE", "8"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
    expect(launched(), 5, 8, 1, 4);
  }
  {
    const Variables mpich(
        {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}});
    expect(launched(), 5, 8, 1, 4);
  }
}

TEST(Launched, CountsSlurmTasksOnThisNode) {
  for (const auto& [node, of_nodes, here] : {std::tuple{0, "8", 8},
                                             {1, "4(x2)", 4},
                                             {1, "4,3,1", 3},
                                             {2, "3(x2),2", 2},
                                             {3, "3(x2),1(x10),4", 1},
                                             {7, "4(x2)", 8},
                                             {0, "", 8}}) {
    const Variables variables(slurm(5, 8, node, 0, of_nodes));
    expect(launched(), 5, 8, 0, here);
  }
}

}  // namespace
}  // namespace fq::launched_test
