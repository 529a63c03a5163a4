// How often a requester may retransmit before its work request fails
// (ibv_modify_qp(3), retry_cnt and rnr_retry; IBA vol. 1, 9.9.2.1.1).
#ifndef TRANSPORT_RC_RETRY_BUDGET_H_
#define TRANSPORT_RC_RETRY_BUDGET_H_

#include <cstdint>

namespace transport {

// Progress gives both budgets back. Probes spend nothing: loss is normal here,
// and must not end the connection of a program that asks for few retries
// (RequesterLossTest.DeadPeer).
class RetryBudget {
 public:
  // rnr_retry: no limit.
  static constexpr uint8_t kForEver = 7;

  // An ACK timeout, or a gap that the peer reports again. False: none is left.
  bool Spend(uint8_t retry_cnt) {
    if (retries_ >= retry_cnt) return false;
    ++retries_;
    return true;
  }
  // An RNR NAK, which also shows that the peer is alive. False: none is left.
  bool SpendRnr(uint8_t rnr_retry) {
    if (rnr_retry == kForEver) return true;
    if (rnr_retries_ >= rnr_retry) return false;
    ++rnr_retries_;
    return true;
  }
  bool any_spent() const { return retries_ > 0; }  // not counting RNR NAKs
  void ForgiveTimeouts() { retries_ = 0; }

 private:
  uint8_t retries_ = 0;
  uint8_t rnr_retries_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_RC_RETRY_BUDGET_H_
