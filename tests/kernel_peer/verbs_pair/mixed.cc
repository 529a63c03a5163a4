#include "tests/kernel_peer/verbs_pair/mixed.h"

#include <cstring>
#include <deque>
#include <random>

namespace verbs_pair {
namespace {

constexpr size_t kSlot = 16384;  // of a receive, a READ's target, a source
constexpr int kOutstanding = 16;
constexpr int kOperations = 300;
constexpr int kSends = kOperations / 3;
constexpr uint64_t kReceiveIds = 1000;  // receives have IDs from here on
// Memory: a region that the peer writes and reads, then slots.
constexpr size_t kRegion = 128 * 1024;
constexpr size_t kReceives = kRegion;
constexpr size_t kReads = kReceives + kOutstanding * kSlot;
constexpr size_t kSources = kReads + kOutstanding * kSlot;
constexpr size_t kMemory = kSources + kOutstanding * kSlot;

size_t RandomSize(std::mt19937* random) {
  const size_t any = (*random)() % kSlot + 1;
  return (*random)() % 2 != 0 ? any : any % 200 + 1;
}

class Mixer {
 public:
  explicit Mixer(const Rig& rig)
      : rig_(rig),
        link_(rig, {.memory = kMemory}),
        model_(kRegion, 0),
        random_(rig.requester ? 1 : 2),
        // Each end knows the sizes of the other's messages.
        sent_sizes_(rig.requester ? 11 : 22),
        received_sizes_(rig.requester ? 22 : 11) {}

  void Run() {
    for (int i = 0; i < kOutstanding; ++i) PostReceive(i);
    rig_.wire_up->Barrier();
    while (done_ < kOperations || received_ < kSends) {
      if (posted_ < kOperations && outstanding_.size() < kOutstanding &&
          !reading_) {
        PostOne();
      } else {
        Complete(link_.Next(2 * kLimitMs));
      }
    }
    const std::string wanted =
        rig_.wire_up->Exchange(std::string(model_.begin(), model_.end()));
    if (std::memcmp(wanted.data(), link_.memory(), kRegion) != 0) {
      Fail("the peer's WRITEs left something else than it wrote");
    }
  }

 private:
  struct Operation {
    int slot;
    std::vector<char> read;  // the expected data of a READ
  };

  void PostReceive(int slot) {
    link_.PostRecv(kReceiveIds + slot,
                   {link_.Piece(kReceives + slot * kSlot, kSlot)});
  }

  void PostOne() {
    const int slot = posted_ % kOutstanding;
    const size_t source = kSources + slot * kSlot;
    uint8_t* bytes = link_.memory() + source;
    Operation operation = {slot, {}};
    if (posted_ % 3 == 0) {
      const size_t size = RandomSize(&sent_sizes_);
      FillPattern(bytes, size, sent_++);
      link_.Send(posted_, {link_.Piece(source, size)});
    } else {
      const size_t size = RandomSize(&random_);
      const size_t at = random_() % (kRegion - size);
      if (random_() % 3 != 0) {
        FillPattern(bytes, size, random_());
        std::memcpy(model_.data() + at, bytes, size);
        link_.Rdma(IBV_WR_RDMA_WRITE, posted_, {link_.Piece(source, size)}, at);
      } else {
        operation.read.assign(model_.begin() + at, model_.begin() + at + size);
        link_.Rdma(IBV_WR_RDMA_READ, posted_,
                   {link_.Piece(kReads + slot * kSlot, size)}, at);
        // After a loss a READ may be answered again with data of a later WRITE,
        // so nothing is posted after a READ until it has completed.
        reading_ = true;
      }
    }
    outstanding_.push_back(std::move(operation));
    ++posted_;
  }

  void Complete(const ibv_wc& wc) {
    if (wc.status != IBV_WC_SUCCESS) {
      Fail("'%s' after %d operations", ibv_wc_status_str(wc.status), done_);
    }
    if (wc.wr_id >= kReceiveIds) {
      const int slot = received_ % kOutstanding;
      if (wc.wr_id != kReceiveIds + slot) Fail("receives out of order");
      const size_t size = RandomSize(&received_sizes_);
      CheckReceived(wc, IBV_WC_RECV, size, 0);
      CheckPattern(link_.memory() + kReceives + slot * kSlot, size, received_,
                   "a SEND among others");
      ++received_;
      PostReceive(slot);
      return;
    }
    if (wc.wr_id != static_cast<uint64_t>(done_)) {
      Fail("operation %llu completed before %d",
           static_cast<unsigned long long>(wc.wr_id), done_);
    }
    const Operation& first = outstanding_.front();
    if (!first.read.empty()) {
      reading_ = false;
      if (std::memcmp(link_.memory() + kReads + first.slot * kSlot,
                      first.read.data(), first.read.size()) != 0) {
        Fail("a READ of %zu bytes brought something else", first.read.size());
      }
    }
    outstanding_.pop_front();
    ++done_;
  }

  const Rig& rig_;
  Link link_;
  std::vector<char> model_;  // of the peer's region
  std::mt19937 random_, sent_sizes_, received_sizes_;
  std::deque<Operation> outstanding_;
  bool reading_ = false;
  uint32_t sent_ = 0, received_ = 0;
  int posted_ = 0, done_ = 0;
};

}  // namespace

void Mixed(const Rig& rig) { Mixer(rig).Run(); }

}  // namespace verbs_pair
