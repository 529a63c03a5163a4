// A ping-pong of two ranks. Usage: mpi_ping_pong BYTES ROUND-TRIPS. Rank 0
// prints the median of half a round trip in us, without the first tenth of the
// round trips.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int Less(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int bytes = argc > 2 ? atoi(argv[1]) : -1;
  const int count = argc > 2 ? atoi(argv[2]) : 0;
  double* took = count > 0 ? malloc(sizeof(double) * (size_t)count) : NULL;
  char* data = bytes >= 0 ? calloc(1, (size_t)bytes + 1) : NULL;
  if (ranks != 2 || took == NULL || data == NULL) {
    fprintf(stderr, "usage, with 2 ranks: mpi_ping_pong BYTES ROUND-TRIPS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = -count / 10; i < count; ++i) {
    const double begin = MPI_Wtime();
    if (rank == 0) MPI_Send(data, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(data, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(data, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    if (i >= 0) took[i] = MPI_Wtime() - begin;
  }
  if (rank == 0) {
    qsort(took, (size_t)count, sizeof(*took), Less);
    printf("half round trip: %.4f us\n", took[count / 2] / 2 * 1e6);
  }
  free(took);
  free(data);
  MPI_Finalize();
  return 0;
}
