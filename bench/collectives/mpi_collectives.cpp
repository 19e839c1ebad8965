// MPI's collectives: what cordma's stand beside. mpirun starts the ranks.

#include "orders.hpp"

#include <mpi.h>

#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using bench::collective;
using bench::order;

void check(int code) {
  if (code != MPI_SUCCESS) throw std::runtime_error{"MPI fails: " + std::to_string(code)};
}

class mpi_rank {
 public:
  explicit mpi_rank(unsigned ranks) : ranks_{int(ranks)} {}

  static collective barrier() {
    return [] { check(MPI_Barrier(MPI_COMM_WORLD)); };
  }
  collective prepare(const order& asked);

 private:
  const int ranks_;
  std::vector<float> in_ = std::vector<float>(bench::collective_bytes_max / sizeof(float), 1);
  std::vector<float> out_ = in_;
};

collective mpi_rank::prepare(const order& asked) {
  const int all = int(asked.bytes / sizeof(float)), part = all / ranks_;
  const float* const in = in_.data();
  float* const out = out_.data();
  if (asked.operation == "barrier") return barrier();
  if (asked.operation == "broadcast")
    return [=, ranks = ranks_, root = 0]() mutable {
      check(MPI_Bcast(out, all, MPI_FLOAT, root++ % ranks, MPI_COMM_WORLD));
    };
  if (asked.operation == "all_gather")
    return [=] {
      check(MPI_Allgather(MPI_IN_PLACE, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD));
    };
  if (asked.operation == "all_reduce")
    return
        [=] { check(MPI_Allreduce(MPI_IN_PLACE, out, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)); };
  if (asked.operation == "reduce_scatter")
    return
        [=] { check(MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)); };
  if (asked.operation == "all_to_all")
    return [=] { check(MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD)); };
  return {};
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::rank_of mine = bench::begin_rank();
  check(MPI_Init(&argc, &argv));
  mpi_rank here{mine.size};
  bench::serve_orders(
      mine.rank, [&](const order& asked) { return here.prepare(asked); }, mpi_rank::barrier());
  check(MPI_Finalize());
} catch (const std::exception& error) {
  std::cerr << "mpi_collectives: " << error.what() << '\n';
  return 1;
}
