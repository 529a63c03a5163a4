// Our device for programs that measure. Any failure ends the program with a
// line on stderr.
#ifndef TESTS_BENCH_VERBS_DEVICE_H_
#define TESTS_BENCH_VERBS_DEVICE_H_

#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <string>

namespace verbs_bench {

[[noreturn]] void Die(const std::string& what, int error = errno);

double Seconds(clockid_t clock);

class Device {
 public:
  // Opens the first device if `name` is empty.
  Device(const std::string& name, int gid_index);

  ibv_mr* Register(void* memory, size_t bytes);
  ibv_cq* CreateCq(int entries);
  // A queue pair whose queues hold `depth` requests each.
  ibv_qp* Create(ibv_cq* cq, uint32_t depth);
  // Moves it to RTS, connected to `peer` at our own address. `timeout` as in
  // ibv_modify_qp(3).
  void Connect(ibv_qp* qp, uint32_t peer, uint8_t timeout = 14);

  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  ibv_ah_attr OwnAddress() const;

 private:
  const int gid_index_;
  ibv_context* context_ = nullptr;
  ibv_gid gid_ = {};
  ibv_pd* pd_ = nullptr;
};

}  // namespace verbs_bench

#endif  // TESTS_BENCH_VERBS_DEVICE_H_
