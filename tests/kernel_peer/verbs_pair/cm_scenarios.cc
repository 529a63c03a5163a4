// RDMA CM connections. The "active" end makes the requests.
#include <cstring>
#include <optional>

#include "tests/kernel_peer/verbs_pair/cm.h"
#include "tests/kernel_peer/verbs_pair/scenarios.h"

namespace verbs_pair {
namespace {

// The private data that the port space TCP leaves in REQ, REP and REJ.
constexpr size_t kRequestData = 56, kReplyData = 196, kRejectData = 148;
// The same for SIDR_REP.
constexpr size_t kResolvedData = 136;
// REJ reasons, the status of RDMA_CM_EVENT_REJECTED.
constexpr int kInvalidServiceId = 8, kConsumer = 28;

std::string Data(size_t size, uint32_t seed) {
  std::string out(size, '\0');
  FillPattern(reinterpret_cast<uint8_t*>(out.data()), size, seed);
  return out;
}

void CheckData(const CmEvent& event, const std::string& want) {
  if (event.private_data.compare(0, want.size(), want) != 0) {
    Fail("%s came with other private data, of %zu bytes",
         rdma_event_str(event.type), event.private_data.size());
  }
}

// The active end: connects to the listener, with private data.
void Request(CmEnd& end, const sockaddr_in6& to) {
  end.Resolve(to);
  end.CreateQp();
  if (end.id()->ps != RDMA_PS_UDP) end.PostRecv();
  end.Connect(Data(kRequestData, 1));
}

// The passive end: a listener and its first request.
class Passive {
 public:
  explicit Passive(const Rig& rig) : listener_(RDMA_PS_TCP) {
    ExchangeCmAddress(rig, listener_.Listen(rig));
    const CmEvent request = listener_.Expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    end_.emplace(request.id);
    CheckData(request, Data(kRequestData, 1));
  }
  CmEnd& end() { return *end_; }

 private:
  CmEnd listener_;
  std::optional<CmEnd> end_;
};

enum class Disconnects { kActive, kPassive, kBoth };

// One connection: private data and a message in each direction.
void Connected(const Rig& rig, Disconnects who) {
  std::optional<Passive> passive;
  std::optional<CmEnd> active;
  CmEnd* end;
  if (rig.requester) {
    end = &active.emplace(RDMA_PS_TCP);
    Request(*end, ExchangeCmAddress(rig, 0));
    CheckData(end->Expect(RDMA_CM_EVENT_ESTABLISHED), Data(kReplyData, 2));
  } else {
    end = &passive.emplace(rig).end();
    end->CreateQp();
    end->PostRecv();
    end->Accept(Data(kReplyData, 2));
    end->Expect(RDMA_CM_EVENT_ESTABLISHED);
  }
  end->Send(rig.requester ? 3 : 4);
  end->Receive(rig.requester ? 4 : 3);
  rig.wire_up->Barrier();
  const bool first = who == Disconnects::kBoth ||
                     (who == Disconnects::kActive) == rig.requester;
  if (first) end->Disconnect();
  end->Expect(RDMA_CM_EVENT_DISCONNECTED);
  if (!first) end->Disconnect();  // answers the other end's
  rig.wire_up->Barrier();
}

void ActiveDisconnects(const Rig& rig) { Connected(rig, Disconnects::kActive); }
void PassiveDisconnects(const Rig& rig) {
  Connected(rig, Disconnects::kPassive);
}
void BothDisconnect(const Rig& rig) { Connected(rig, Disconnects::kBoth); }

void ExpectRejected(CmEnd& end, int reason, const std::string& data) {
  const CmEvent event = end.Expect(RDMA_CM_EVENT_REJECTED);
  if (event.status != reason) Fail("rejected with status %d", event.status);
  CheckData(event, data);
}

void Rejected(const Rig& rig) {
  if (rig.requester) {
    CmEnd end(RDMA_PS_TCP);
    Request(end, ExchangeCmAddress(rig, 0));
    ExpectRejected(end, kConsumer, Data(kRejectData, 5));
  } else {
    Passive passive(rig);
    const std::string data = Data(kRejectData, 5);
    if (rdma_reject(passive.end().id(), data.data(),
                    static_cast<uint8_t>(data.size())) != 0) {
      Fail("rdma_reject: %s", std::strerror(errno));
    }
    rig.wire_up->Barrier();
    return;
  }
  rig.wire_up->Barrier();
}

// The listener is gone.
void Refused(const Rig& rig) {
  if (rig.requester) {
    const sockaddr_in6 to = ExchangeCmAddress(rig, 0);
    CmEnd end(RDMA_PS_TCP);
    Request(end, to);
    ExpectRejected(end, kInvalidServiceId, "");
    return;
  }
  uint16_t port;
  {
    CmEnd listener(RDMA_PS_TCP);
    port = listener.Listen(rig);
  }
  ExchangeCmAddress(rig, port);
}

// The active end ends before it has an answer.
void ActiveGivesUp(const Rig& rig) {
  if (rig.requester) {
    CmEnd end(RDMA_PS_TCP);
    Request(end, ExchangeCmAddress(rig, 0));
    rig.wire_up->Barrier();
    end.Destroy();
    rig.wire_up->Barrier();
    return;
  }
  Passive passive(rig);
  passive.end().CreateQp();
  rig.wire_up->Barrier();
  rig.wire_up->Barrier();
  // Only an end that has accepted gets an event; a later accept fails.
  if (passive.end().TryAccept()) passive.end().Expect(RDMA_CM_EVENT_REJECTED);
}

// The passive end ends without answering.
void PassiveGivesUp(const Rig& rig) {
  if (rig.requester) {
    CmEnd end(RDMA_PS_TCP);
    Request(end, ExchangeCmAddress(rig, 0));
    ExpectRejected(end, kConsumer, "");
  } else {
    Passive passive(rig);
    passive.end().Destroy();
  }
  rig.wire_up->Barrier();
}

// The connection ends because an id is destroyed without disconnecting.
void Destroyed(const Rig& rig) {
  if (rig.requester) {
    CmEnd end(RDMA_PS_TCP);
    Request(end, ExchangeCmAddress(rig, 0));
    end.Expect(RDMA_CM_EVENT_ESTABLISHED);
    rig.wire_up->Barrier();
    end.Destroy();
    rig.wire_up->Barrier();
    return;
  }
  Passive passive(rig);
  passive.end().CreateQp();
  passive.end().Accept("");
  passive.end().Expect(RDMA_CM_EVENT_ESTABLISHED);
  rig.wire_up->Barrier();
  passive.end().Expect(RDMA_CM_EVENT_DISCONNECTED);
  rig.wire_up->Barrier();
}

constexpr size_t kGrh = 40;

// Service ID resolution, and a datagram to the queue pair found.
void Datagram(const Rig& rig) {
  if (rig.requester) {
    CmEnd end(RDMA_PS_UDP);
    Request(end, ExchangeCmAddress(rig, 0));
    const CmEvent event = end.Expect(RDMA_CM_EVENT_ESTABLISHED);
    CheckData(event, Data(kResolvedData, 2));
    ibv_ah_attr attr = event.datagram.ah_attr;
    const std::unique_ptr<ibv_ah, int (*)(ibv_ah*)> ah(
        ibv_create_ah(end.id()->pd, &attr), ibv_destroy_ah);
    if (ah == nullptr) Fail("ibv_create_ah: %s", std::strerror(errno));
    end.Send(3, ah.get(), event.datagram.qp_num, event.datagram.qkey);
    rig.wire_up->Barrier();
    return;
  }
  CmEnd listener(RDMA_PS_UDP);
  ExchangeCmAddress(rig, listener.Listen(rig));
  const CmEvent request = listener.Expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  CmEnd end(request.id);
  CheckData(request, Data(kRequestData, 1));
  end.CreateQp();
  end.PostRecv();
  end.Accept(Data(kResolvedData, 2));
  end.Receive(3, kGrh);
  rig.wire_up->Barrier();
}

constexpr Scenario kScenarios[] = {
    {"cm_active_disconnects", ActiveDisconnects},
    {"cm_passive_disconnects", PassiveDisconnects},
    {"cm_both_disconnect", BothDisconnect},
    {"cm_rejected", Rejected},
    {"cm_refused", Refused},
    {"cm_active_gives_up", ActiveGivesUp},
    {"cm_passive_gives_up", PassiveGivesUp},
    {"cm_destroyed", Destroyed},
    {"cm_datagram", Datagram},
};

}  // namespace

std::span<const Scenario> CmScenarios() { return kScenarios; }

}  // namespace verbs_pair
