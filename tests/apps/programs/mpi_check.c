// An MPI program that verifies received data: point to point, collectives, and
// one-sided. Usage: mpi_check [LARGEST MESSAGE IN BYTES]. The last line of rank
// 0 is "mpi_check: N ranks, N checks, 0 wrong"; exits with 1 if any is wrong.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static long checks, wrong;

static void Check(int holds, const char* what, long detail) {
  ++checks;
  if (holds) return;
  if (++wrong <= 5) {
    fprintf(stderr, "mpi_check: rank %d: %s (%ld)\n", rank, what, detail);
  }
}

// The message from `from` to `to` under `tag`: each byte depends on all three.
static void Fill(uint8_t* bytes, size_t size, int from, int to, int tag) {
  uint32_t x = 1 + (uint32_t)from * 7919u + (uint32_t)to * 104729u +
               (uint32_t)tag * 1299709u;
  for (size_t i = 0; i < size; ++i) {
    x = x * 1664525u + 1013904223u;
    bytes[i] = (uint8_t)(x >> 24);
  }
}

static void CheckFilled(const uint8_t* bytes, size_t size, int from, int to,
                        int tag, const char* what) {
  uint8_t* expected = malloc(size + 1);
  Fill(expected, size, from, to, tag);
  Check(memcmp(bytes, expected, size) == 0, what, (long)size);
  free(expected);
}

// All ranks with all ranks, themselves included, at once.
static void PointToPoint(size_t size) {
  uint8_t* out = malloc((size + 1) * ranks);
  uint8_t* in = malloc((size + 1) * ranks);
  MPI_Request* requests = malloc(sizeof(MPI_Request) * 2 * ranks);
  memset(in, 0xee, (size + 1) * ranks);
  const int tag = (int)(size % 30000);
  for (int i = 0; i < ranks; ++i) {
    MPI_Irecv(in + (size + 1) * i, (int)size, MPI_BYTE, i, tag, MPI_COMM_WORLD,
              &requests[i]);
  }
  for (int i = 0; i < ranks; ++i) {
    uint8_t* const bytes = out + (size + 1) * i;
    Fill(bytes, size, rank, i, tag);
    MPI_Isend(bytes, (int)size, MPI_BYTE, i, tag, MPI_COMM_WORLD,
              &requests[ranks + i]);
  }
  MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < ranks; ++i) {
    const uint8_t* const bytes = in + (size + 1) * i;
    CheckFilled(bytes, size, i, rank, tag, "point to point");
    Check(bytes[size] == 0xee, "a byte behind the message", (long)size);
  }
  free(requests);
  free(in);
  free(out);
}

// Messages that arrive before their receive is posted, received in another
// order than sent, and messages from any rank.
static void Unexpected(size_t size) {
  enum { kMessages = 8 };
  uint8_t* bytes = malloc(size + 1);
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  MPI_Request requests[kMessages];
  uint8_t* out = malloc((size + 1) * kMessages);
  for (int i = 0; i < kMessages; ++i) {
    Fill(out + (size + 1) * i, size, rank, next, i);
    MPI_Isend(out + (size + 1) * i, (int)size, MPI_BYTE, next, i,
              MPI_COMM_WORLD, &requests[i]);
  }
  for (int i = kMessages - 1; i >= 0; --i) {
    MPI_Status status;
    int count = -1;
    MPI_Probe(before, i, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    Check(count == (int)size, "length of a probed message", count);
    MPI_Recv(bytes, (int)size, MPI_BYTE, before, i, MPI_COMM_WORLD, &status);
    CheckFilled(bytes, size, before, rank, i, "unexpected message");
  }
  MPI_Waitall(kMessages, requests, MPI_STATUSES_IGNORE);
  MPI_Request request;
  Fill(out, size, rank, 0, 99);
  MPI_Issend(out, (int)size, MPI_BYTE, 0, 99, MPI_COMM_WORLD, &request);
  for (int i = 0; rank == 0 && i < ranks; ++i) {
    MPI_Status status;
    MPI_Recv(bytes, (int)size, MPI_BYTE, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD,
             &status);
    CheckFilled(bytes, size, status.MPI_SOURCE, 0, 99, "message from anybody");
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  free(out);
  free(bytes);
}

static void Collectives(int count) {
  int64_t* in = malloc(sizeof(int64_t) * count * ranks);
  int64_t* out = malloc(sizeof(int64_t) * count * ranks);
  const int64_t n = ranks;
  for (int root = 0; root < ranks; ++root) {
    for (int i = 0; i < count; ++i) out[i] = rank == root ? root + 3 * i : -1;
    MPI_Bcast(out, count, MPI_INT64_T, root, MPI_COMM_WORLD);
    int good = 1;
    for (int i = 0; i < count; ++i) good &= out[i] == root + 3 * i;
    Check(good, "broadcast", count);

    for (int i = 0; i < count; ++i) out[i] = rank + i;
    MPI_Reduce(out, in, count, MPI_INT64_T, MPI_SUM, root, MPI_COMM_WORLD);
    good = 1;
    for (int i = 0; rank == root && i < count; ++i) {
      good &= in[i] == n * (n - 1) / 2 + n * i;
    }
    Check(good, "reduce", count);
  }
  for (int i = 0; i < count; ++i) out[i] = (int64_t)rank * i;
  MPI_Allreduce(out, in, count, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
  int good = 1;
  for (int i = 0; i < count; ++i) good &= in[i] == (n - 1) * i;
  Check(good, "allreduce", count);

  MPI_Scan(out, in, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  good = 1;
  for (int i = 0; i < count; ++i) {
    good &= in[i] == (int64_t)rank * (rank + 1) / 2 * i;
  }
  Check(good, "scan", count);

  MPI_Allgather(out, count, MPI_INT64_T, in, count, MPI_INT64_T,
                MPI_COMM_WORLD);
  good = 1;
  for (int r = 0; r < ranks; ++r) {
    for (int i = 0; i < count; ++i) good &= in[r * count + i] == (int64_t)r * i;
  }
  Check(good, "allgather", count);

  for (int r = 0; r < ranks; ++r) {
    for (int i = 0; i < count; ++i) out[r * count + i] = rank * 1000 + r + i;
  }
  MPI_Alltoall(out, count, MPI_INT64_T, in, count, MPI_INT64_T, MPI_COMM_WORLD);
  good = 1;
  for (int r = 0; r < ranks; ++r) {
    for (int i = 0; i < count; ++i) {
      good &= in[r * count + i] == r * 1000 + rank + i;
    }
  }
  Check(good, "alltoall", count);
  free(out);
  free(in);
}

// Between fences all ranks put to, get from, and add to all ranks.
static void Fences(size_t size) {
  uint8_t* memory;
  MPI_Win window;
  const size_t block = size + 8;
  MPI_Win_allocate((MPI_Aint)(block * ranks), 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                   &memory, &window);
  memset(memory, 0, block * ranks);
  uint8_t* out = malloc(size * ranks);
  MPI_Win_fence(0, window);
  const int64_t one = 1 + rank;
  for (int r = 0; r < ranks; ++r) {
    Fill(out + size * r, size, rank, r, 5);
    MPI_Put(out + size * r, (int)size, MPI_BYTE, r, (MPI_Aint)(block * rank),
            (int)size, MPI_BYTE, window);
    MPI_Accumulate(&one, 1, MPI_INT64_T, r, (MPI_Aint)size, 1, MPI_INT64_T,
                   MPI_SUM, window);
  }
  MPI_Win_fence(0, window);
  for (int r = 0; r < ranks; ++r) {
    CheckFilled(memory + block * r, size, r, rank, 5, "put");
  }
  int64_t sum;
  memcpy(&sum, memory + size, 8);
  Check(sum == (int64_t)ranks * (ranks + 1) / 2, "accumulate", (long)sum);
  MPI_Win_fence(0, window);
  memset(out, 0, size * ranks);
  for (int r = 0; r < ranks; ++r) {
    MPI_Get(out + size * r, (int)size, MPI_BYTE, r, (MPI_Aint)(block * rank),
            (int)size, MPI_BYTE, window);
  }
  MPI_Win_fence(0, window);
  for (int r = 0; r < ranks; ++r) {
    CheckFilled(out + size * r, size, rank, r, 5, "get");
  }
  free(out);
  MPI_Win_free(&window);
}

// A ticket counter at rank 0, from which each number is taken once; and a
// compare-and-swap lock around a plain counter.
static void Atomics(int times) {
  int64_t* memory;
  MPI_Win window;
  MPI_Win_allocate(24, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  memset(memory, 0, 24);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, window);
  const int64_t one = 1, none = 0, mine = 1 + rank;
  int64_t before = -1, sum = 0;
  for (int i = 0; i < times; ++i) {
    int64_t ticket = -1;
    MPI_Fetch_and_op(&one, &ticket, MPI_INT64_T, 0, 0, MPI_SUM, window);
    MPI_Win_flush(0, window);
    Check(ticket > before, "tickets rise", (long)ticket);
    before = ticket;
    sum += ticket;
    int64_t found;
    do {
      found = -1;
      MPI_Compare_and_swap(&mine, &none, &found, MPI_INT64_T, 0, 1, window);
      MPI_Win_flush(0, window);
      // The holder of the lock may need rank 0 to release it. A waiting rank 0
      // does not make progress for others by itself (Open MPI over UCX's ud_v,
      // whose atomics are software at the target).
      int is_there;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there,
                 MPI_STATUS_IGNORE);
    } while (found != 0);
    int64_t value = -1;
    MPI_Get(&value, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, window);
    MPI_Win_flush(0, window);
    ++value;
    MPI_Put(&value, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, window);
    MPI_Win_flush(0, window);
    MPI_Fetch_and_op(&none, &found, MPI_INT64_T, 0, 1, MPI_REPLACE, window);
    MPI_Win_flush(0, window);
    Check(found == mine, "who holds the lock", (long)found);
  }
  MPI_Win_unlock_all(window);
  int64_t all = 0;
  MPI_Allreduce(&sum, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  const int64_t n = (int64_t)times * ranks;
  Check(all == n * (n - 1) / 2, "each ticket once", (long)all);
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
  int64_t count = -1;
  MPI_Get(&count, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, window);
  MPI_Win_unlock(0, window);
  Check(count == n, "counter under the lock", (long)count);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_free(&window);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const size_t largest =
      argc > 1 ? strtoul(argv[1], NULL, 10) : (size_t)(4 << 20);
  static const size_t kSizes[] = {0,     1,      8,       255,     1024,   4097,
                                  16384, 100000, 1 << 18, 1 << 20, 4 << 20};
  for (size_t i = 0; i < sizeof(kSizes) / sizeof(*kSizes); ++i) {
    if (kSizes[i] <= largest) PointToPoint(kSizes[i]);
  }
  Unexpected(100);
  Unexpected(largest < 200000 ? largest : 200000);
  static const int kCounts[] = {1, 100, 5000};
  for (size_t i = 0; i < sizeof(kCounts) / sizeof(*kCounts); ++i) {
    Collectives(kCounts[i]);
  }
  for (int i = 0; i < 100; ++i) MPI_Barrier(MPI_COMM_WORLD);
  Fences(8);
  Fences(largest < 100000 ? largest / 8 * 8 : 100000);
  Atomics(20);

  long all[2], own[2] = {checks, wrong};
  MPI_Allreduce(own, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("mpi_check: %d ranks, %ld checks, %ld wrong\n", ranks, all[0],
           all[1]);
  }
  MPI_Finalize();
  return all[1] != 0;
}
