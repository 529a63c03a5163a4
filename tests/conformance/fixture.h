// Programs that use the public C interface on the loopback device. Both ends
// are in one process, and in one thread unless a test says otherwise.
#ifndef TESTS_CONFORMANCE_FIXTURE_H_
#define TESTS_CONFORMANCE_FIXTURE_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace conformance {

// Time limit for any step; the machine may be slow.
inline constexpr int kTimeoutMs = 20'000;

// One side of a connection: its queues and a registered buffer.
struct Side {
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  std::vector<uint8_t> memory;
  ibv_mr* mr = nullptr;

  uint64_t address(size_t offset = 0) const {
    return reinterpret_cast<uint64_t>(memory.data()) + offset;
  }
  ibv_sge Sge(size_t offset, uint32_t length) const {
    return {address(offset), length, mr->lkey};
  }
};

struct QpOptions {
  ibv_qp_type type = IBV_QPT_RC;
  ibv_qp_cap cap = {64, 64, 4, 4, 128};
  bool signal_all = false;
  ibv_srq* srq = nullptr;
  uint64_t send_ops = 0;        // not 0: uses ibv_create_qp_ex
  uint16_t max_tso_header = 0;  // the same
  uint32_t create_flags = 0;    // the same
};

struct ConnectOptions {
  uint8_t timeout = 14;  // 67 ms
  uint8_t retry_cnt = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;
  uint8_t max_rd_atomic = 4;
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  ibv_mtu mtu = IBV_MTU_1024;
};

constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// Opens the device that has 127.0.0.1.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  uint8_t gid_index_ = 0;
  ibv_gid gid_ = {};
};

// Two queue pairs, `a_` and `b_`, connected to each other and in RTS.
class PairTest : public DeviceTest {
 protected:
  static constexpr size_t kMemory = 1 << 20;

  void SetUp() override;
  void TearDown() override;

  // Called by SetUp; may be called again for more sides.
  void MakeSide(Side* side, const QpOptions& options = {}, int cqe = 256,
                ibv_comp_channel* channel = nullptr, size_t memory = kMemory,
                int access = kAllAccess);
  void DestroySide(Side* side);
  void DestroyQp(Side* side);
  void ToInit(ibv_qp* qp, const ConnectOptions& options = {});
  // Moves a queue pair from RESET to RTS with the attributes of its type.
  // Returns the result of the last ibv_modify_qp.
  int ToRts(ibv_qp* qp, uint32_t peer, const ConnectOptions& options = {});
  // From RESET to RTS, for UD. Fails the test on error.
  void ToRtsAsUd(ibv_qp* qp, uint32_t qkey);
  void Connect(Side* a, Side* b, const ConnectOptions& options = {});
  ibv_qp_attr RtrAttributes(uint32_t peer, const ConnectOptions& options = {});

  // Polls the next completion of `cq`; the test fails if none arrives.
  ibv_wc Next(ibv_cq* cq);
  // The completion that arrives within `ms`, if any.
  std::optional<ibv_wc> Within(ibv_cq* cq, int ms);
  // Expects that the next completion is a success with `wr_id`.
  ibv_wc ExpectSuccess(ibv_cq* cq, uint64_t wr_id);
  void ExpectStatus(ibv_cq* cq, uint64_t wr_id, ibv_wc_status status);

  // Posts one request with one SGE (none if length is 0).
  int Send(Side& side, ibv_wr_opcode opcode, uint64_t wr_id, size_t offset,
           uint32_t length, unsigned flags = IBV_SEND_SIGNALED,
           uint64_t remote_addr = 0, uint32_t rkey = 0);
  int Receive(Side& side, uint64_t wr_id, size_t offset, uint32_t length);

  ibv_qp_state StateOf(ibv_qp* qp);

  // Expects that `cq` is empty. Only for completions that would precede one
  // already seen.
  void ExpectNothing(ibv_cq* cq);
  // Waits until everything posted to `side` is complete, without polling its
  // CQ. The last request must be a WRITE of a non-zero value to `*last`, which
  // was 0. No other asynchronous event may arrive.
  void AwaitUnpolled(Side& side, const uint8_t* last);

  // Tests clear it before SetUp to make their own pairs.
  bool make_pair_ = true;
  Side a_, b_;
};

// Content that differs in each byte and for each seed.
void FillPattern(uint8_t* bytes, size_t size, uint32_t seed);
bool HasPattern(const uint8_t* bytes, size_t size, uint32_t seed);

int64_t NowMs();

}  // namespace conformance

#endif  // TESTS_CONFORMANCE_FIXTURE_H_
