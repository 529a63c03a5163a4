// A connection of a target (DCT) to one initiator: an RC responder with a
// number of its own, to which the initiator's packets are sent. Its receives,
// rights and completions are the target's. A request that fails ends the
// connection, not the target.
#ifndef TRANSPORT_DC_DC_CONNECTION_H_
#define TRANSPORT_DC_DC_CONNECTION_H_

#include <cstdint>
#include <list>
#include <memory>

#include "transport/qp/header_front.h"
#include "transport/qp/queue_pair.h"
#include "transport/rc/responder.h"
#include "wire/dc.h"

namespace transport {

class DcConnections;

class DcConnection final : public QueuePair, private HeaderFront {
 public:
  // READs and atomics that it can answer again: as many as an initiator of ours
  // may have outstanding. The first one allocates the memory for them.
  static constexpr uint8_t kReadResources = 128;

  // `config`: the target's, with `events` of this connection.
  DcConnection(Endpoint& endpoint, const QpConfig& config, uint32_t number,
               DcConnections& owner);
  ~DcConnection() override;

  // Accepts `connect`, once. `session`: the responder's. `source_port`: of the
  // responses. Throws std::bad_alloc.
  void Accept(const QpAttributes& target, const Received& connect,
              uint32_t session, uint16_t source_port);
  // Whether `connect` is a copy of the CONNECT that it has accepted. A copy is
  // answered again.
  bool IsCopy(const Received& connect) const;
  void AnswerAgain() { answer_due_ = true; }
  // Whether early data, sent to the target before the answer has arrived, are
  // for this connection.
  bool TakesEarly(const Received& data) const;
  // Flushes the receive that is in use.
  void Close(Time now);

  uint32_t target() const { return config().qpn; }
  const wire::IpAddress& peer() const { return attributes().av.destination; }
  uint32_t initiator() const { return attributes().dest_qpn; }
  // Data have arrived on it from a sender that has got the answer to its
  // CONNECT.
  bool established() const { return established_; }
  bool dead() const { return state() == QpState::kErr; }

 private:
  friend class DcConnections;

  // --- QueuePair.
  void StartReceiving() override { responder_.Start(); }
  void OnError() override;
  void OnReset() override { responder_.Reset(); }
  void ReportService(QpReport* report) const override;
  bool OnRequest(const Received& received, Time now) override;
  bool IsExpected(const wire::PacketView& packet) const override;
  bool IsWithinWindow(const wire::PacketView& packet) const override;
  void OnNotification(Time now) override { responder_.OnNotification(now); }
  void ForgetOutOfOrder() override { responder_.ForgetOutOfOrder(); }
  void OnServiceTimer(Time now) override { responder_.OnTimer(now); }
  Interests TakeServiceInterests(Time now) override;
  Interests TransmitService(Time now, const TransmitTurn& turn,
                            Burst* burst) override;

  // --- HeaderFront.
  void Emit(uint8_t opcode, uint8_t* packet) const override {
    wire::EmitDcEth(dceth_, opcode, packet);
  }

  // Whether `packet` is a request of this session.
  bool IsOfThisSession(const wire::PacketView& packet) const;
  // False: there is no memory.
  bool AllocateReadResources();

  DcConnections& owner_;
  wire::DcEth dceth_;  // of its packets
  uint32_t connect_psn_ = 0;
  uint16_t port_ = 0;  // UDP source port of the initiator
  bool answer_due_ = false;
  bool established_ = false;
  // --- Of DcConnections.
  Time used_ = 0;
  std::list<std::unique_ptr<DcConnection>>::iterator place_;

  Responder responder_;
};

}  // namespace transport

#endif  // TRANSPORT_DC_DC_CONNECTION_H_
