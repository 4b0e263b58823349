#include <limits>

#include "fakequant/core/backend/cuda/loops/row_blocks.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

/// Index of the largest score so far. NaN counts as largest.
template <class T>
struct Prediction {
  T score;
  std::int64_t at;
};

struct JoinPredictions {
  template <class T>
  FQ_HD void operator()(Prediction<T>& a, const Prediction<T>& b) const {
    // The first of equal scores wins in any order of joining.
    const bool takes = b.score > a.score || (b.score == a.score && b.at < a.at) || b.score != b.score;
    if (a.score == a.score && takes) a = b;
  }
};

// scores: [rows, classes]. Threads of a block share a row, so large vocabularies are read in parallel.
template <class T>
struct FindPredictions {
  static constexpr int phases = 1 + join_phases;
  struct Shared {
    Prediction<T> found[block_threads];
  };
  RowBlocks shape;
  const T* scores;
  std::int64_t* out;

  FQ_HD Prediction<T> lane_prediction(std::int64_t row, int lane) const {
    Prediction<T> found{-std::numeric_limits<T>::infinity(), shape.length};
    visit_lane(shape, lane, [&](std::int64_t first, int count) {
      T v[group_size];
      load_group(scores + row * shape.length + first, count, v);
      for (int j = 0; j < group_size; ++j)
        if (j < count) JoinPredictions{}(found, {v[j], first + j});
    });
    return found;
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    if (Phase == 0) shared.found[t.thread] = lane_prediction(p.row, p.lane);
    if constexpr (Phase > 0) join_lanes<Phase - 1>(shape, p, shared.found, JoinPredictions{});
    if (Phase == join_phases && p.lane == 0) {
      const Prediction<T>& best = shared.found[p.first];
      // A NaN once taken is never replaced, so it reaches the end.
      out[p.row] = best.score == best.score ? best.at : -1;
    }
  }
};

}  // namespace

void predictions(const Tensor& scores, Tensor& out) {
  if (scores.numel() == 0) return;
  const auto shape = RowBlocks::of(scores.dim(0), scores.dim(1));
  visit_float(scores.dtype(), [&]<class T>(T) {
    launch_blocks(scores.device(), shape.blocks(),
                  FindPredictions<T>{shape, device_data<T>(scores), mutable_device_data<std::int64_t>(out)});
  });
}

}  // namespace fq::cuda
