// Connections: reconnecting, reused numbers, address vectors.
#include "tests/kernel_peer/verbs_pair/scenarios.h"

namespace verbs_pair {
namespace {

// A message of several packets of each kind, with contents compared.
void Traffic(const Rig& rig, Link* link, uint32_t seed) {
  constexpr size_t kSize = 20'001;
  constexpr int kRounds = 4;
  uint8_t* memory = link->memory();
  if (rig.requester) {
    FillPattern(memory, kSize, seed);
    rig.wire_up->Barrier();
    for (int i = 0; i < kRounds; ++i) {
      link->Send(1, {link->Piece(0, kSize)});
      link->Rdma(IBV_WR_RDMA_WRITE, 2, {link->Piece(0, kSize)}, kSize);
      link->Rdma(IBV_WR_RDMA_READ, 3, {link->Piece(kSize, kSize)}, kSize);
      for (uint64_t id = 1; id <= 3; ++id) link->Expect(id);
      CheckPattern(memory + kSize, kSize, seed, "a READ of what was written");
    }
    rig.wire_up->Barrier();
    return;
  }
  for (int i = 0; i < kRounds; ++i) link->PostRecv(i, {link->Piece(0, kSize)});
  rig.wire_up->Barrier();
  for (int i = 0; i < kRounds; ++i) {
    CheckReceived(link->Expect(i), IBV_WC_RECV, kSize, 0);
    CheckPattern(memory, kSize, seed, "a SEND");
  }
  rig.wire_up->Barrier();
}

// PSNs wrap from 2^24 - 1 to 0 within a message of each kind.
void PsnWrap(const Rig& rig) {
  for (uint32_t before : {1u, 2u, 7u, 16u, 30u, 64u}) {
    Link link(rig, {.sq_psn = (1u << 24) - before});
    Traffic(rig, &link, before);
  }
}

// A queue pair is reconnected after RESET with other PSNs.
void Reset(const Rig& rig) {
  Link link(rig, {.sq_psn = 1000});
  Traffic(rig, &link, 1);
  for (uint32_t psn : {0u, 5'000'000u, (1u << 24) - 1}) {
    link.Reconnect(psn);
    Traffic(rig, &link, psn);
  }
}

// Queue pairs are created and destroyed; numbers may be reused.
void Recreate(const Rig& rig) {
  for (uint32_t i = 0; i < 20; ++i) {
    Link link(rig, {.sq_psn = i * 0x111111u % (1u << 24)});
    Traffic(rig, &link, i);
  }
}

// Eight connections between the same two processes. The hop limit identifies
// them in a capture.
void EightAtOnce(const Rig& rig) {
  std::vector<std::unique_ptr<Link>> links;
  for (int i = 0; i < 8; ++i) {
    links.push_back(std::make_unique<Link>(rig, Options{.hop_limit = 19}));
  }
  for (uint32_t i = 0; i < links.size(); ++i) Traffic(rig, links[i].get(), i);
}

// For a capture: the values of the address vector must appear on the wire.
void AddressVector(const Rig& rig) {
  Link link(rig, {.traffic_class = 0x68, .hop_limit = 17});
  Traffic(rig, &link, 1);
}

// Two flows with one flow label.
void FlowLabel(const Rig& rig) {
  for (uint32_t seed : {1u, 2u}) {
    Link link(rig, {.hop_limit = 18, .flow_label = 0x2abcd});
    Traffic(rig, &link, seed);
  }
}

constexpr Scenario kScenarios[] = {
    {"psn_wrap", PsnWrap},
    {"reset", Reset},
    {"recreate", Recreate},
    {"eight_at_once", EightAtOnce},
    {"address_vector", AddressVector, true},
    {"flow_label", FlowLabel, true},
};

}  // namespace

std::span<const Scenario> ConnectionScenarios() { return kScenarios; }

}  // namespace verbs_pair
