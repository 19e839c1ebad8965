/* Two or more ranks: ping-pong, allreduce and one-sided, each with its data checked. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { words = 40000, rounds = 20 };

static int rank, size;

static void require(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "rank %d: wrong data after %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(unsigned* at, int count, unsigned seed) {
  for (int i = 0; i < count; ++i) at[i] = seed + (unsigned)i * 7;
}

static int holds(const unsigned* at, int count, unsigned seed) {
  for (int i = 0; i < count; ++i)
    if (at[i] != seed + (unsigned)i * 7) return 0;
  return 1;
}

/* Rank 0 and 1: eager and rendezvous sizes. */
static void ping_pong(unsigned* buffer) {
  const int counts[] = {1, 500, words};
  for (int n = 0; n < 3; ++n)
    for (unsigned round = 0; round < rounds; ++round)
      for (int sender = 0; sender < 2; ++sender) {
        if (rank == sender) {
          fill(buffer, counts[n], round);
          MPI_Send(buffer, counts[n], MPI_UNSIGNED, 1 - rank, 5, MPI_COMM_WORLD);
        } else if (rank == 1 - sender) {
          MPI_Recv(buffer, counts[n], MPI_UNSIGNED, sender, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
          require(holds(buffer, counts[n], round), "a ping-pong");
        }
      }
}

static void all_reduce(void) {
  for (int round = 0; round < rounds; ++round) {
    long long mine = rank + round, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    require(sum == (long long)size * (size - 1) / 2 + (long long)size * round, "an allreduce");
  }
}

/* Each rank puts into its neighbour's window, gets from it, and adds to rank 0's first word. */
static void one_sided(unsigned* buffer) {
  unsigned* window_memory = NULL;
  MPI_Win window;
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  MPI_Win_allocate((words + 1) * sizeof(unsigned), sizeof(unsigned), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &window_memory, &window);
  window_memory[0] = 0;
  fill(buffer, words, (unsigned)rank);
  MPI_Win_fence(0, window);
  MPI_Put(buffer, words, MPI_UNSIGNED, next, 1, words, MPI_UNSIGNED, window);
  MPI_Win_fence(0, window);
  require(holds(window_memory + 1, words, (unsigned)previous), "a put");
  MPI_Get(buffer, words, MPI_UNSIGNED, next, 1, words, MPI_UNSIGNED, window);
  MPI_Win_fence(0, window);
  require(holds(buffer, words, (unsigned)rank), "a get");
  const unsigned one = 1;
  for (int round = 0; round < rounds; ++round)
    MPI_Accumulate(&one, 1, MPI_UNSIGNED, 0, 0, 1, MPI_UNSIGNED, MPI_SUM, window);
  MPI_Win_fence(0, window);
  require(rank != 0 || window_memory[0] == (unsigned)(rounds * size), "an accumulate");
  MPI_Win_free(&window);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  unsigned* const buffer = malloc(words * sizeof *buffer);
  ping_pong(buffer);
  all_reduce();
  one_sided(buffer);
  free(buffer);
  if (rank == 0) printf("%d ranks: all data is right\n", size);
  MPI_Finalize();
  return 0;
}
