#include "rxe_user/broker/management.h"

#include "rxe_user/base/random.h"

namespace rxe_user::broker {
namespace {

using transport::Time;
using transport::cm::MadPacketError;
using What = Management::Verdict::What;

// How long requests are remembered, and how many in each half: longer than
// peers retransmit with the kernel's timeouts.
constexpr Time kRememberFor = 60 * transport::kSecond;
constexpr size_t kMaxRemembered = 8192;
// Datagrams with a wrong ICRC that are forwarded only so that they can be
// reported.
constexpr int64_t kUnverifiedPerSecond = 10;

bool IsProcess(Management::Holder holder) {
  return holder == Management::Holder::kProcess ||
         holder == Management::Holder::kWantsUnverified;
}

// The parts of a message that routing needs.
struct Address {
  bool request = false;  // by service ID
  bool sidr = false;
  uint64_t service_id = 0;
  uint32_t own_id = 0;     // the sender's
  uint32_t remote_id = 0;  // the receiver's; 0: the sender knows none
};

Address AddressOf(const wire::CmView& mad) {
  switch (mad.attribute()) {
    case wire::CmAttribute::kReq: {
      const wire::CmReq req = mad.req();
      return {.request = true,
              .service_id = req.service_id,
              .own_id = req.local_comm_id};
    }
    case wire::CmAttribute::kSidrReq: {
      const wire::CmSidrReq req = mad.sidr_req();
      return {.request = true,
              .sidr = true,
              .service_id = req.service_id,
              .own_id = req.request_id};
    }
    case wire::CmAttribute::kSidrRep:
      return {.remote_id = mad.sidr_rep().request_id};
    default:
      return {.own_id = mad.local_comm_id(), .remote_id = mad.remote_comm_id()};
  }
}

}  // namespace

uint32_t Management::Random::Next32() { return SecureRandom32(); }

Management::Management()
    : nobody_(transport::cm::Config{}, &random_),
      unverified_(kUnverifiedPerSecond, kUnverifiedPerSecond) {}

const Management::Request* Management::Recent(const RequestKey& key) const {
  for (const Requests* requests : {&recent_, &older_}) {
    const auto found = requests->find(key);
    if (found != requests->end()) return &found->second;
  }
  return nullptr;
}

void Management::Remember(const RequestKey& key, const Request& request,
                          Time now) {
  if (recent_.size() >= kMaxRemembered || now - recent_since_ >= kRememberFor) {
    older_ = std::move(recent_);
    recent_.clear();
    recent_since_ = now;
  }
  recent_[key] = request;
}

void Management::Forget(uint16_t slot) {
  services_.RemoveAll(slot);
  const auto of_slot = [slot](const auto& r) { return r.second.slot == slot; };
  std::erase_if(recent_, of_slot);
  std::erase_if(older_, of_slot);
}

std::optional<uint16_t> Management::FindRequest(const RequestKey& key,
                                                uint64_t service_id,
                                                const LocalAddress& local,
                                                const HolderOf& holder_of,
                                                Time now) {
  std::optional<uint16_t> slot;
  const Request* const recent = Recent(key);
  if (recent != nullptr && recent->service_id == service_id) {
    slot = recent->slot;
  } else {
    slot = services_.Match(service_id, local);
    if (slot.has_value()) Remember(key, {service_id, *slot}, now);
  }
  if (slot.has_value() && IsProcess(holder_of(*slot))) return slot;
  return std::nullopt;
}

Management::Verdict Management::Route(const Datagram& datagram,
                                      const HolderOf& holder_of, bool all_known,
                                      Time now) {
  std::span<const uint8_t> bytes;
  switch (transport::cm::ParseMadPacket({.source = datagram.source,
                                         .destination = datagram.local.address,
                                         .source_port = datagram.source_port},
                                        datagram.bytes, &bytes)) {
    case MadPacketError::kOk:
      break;
    case MadPacketError::kMalformed:
    case MadPacketError::kOtherQp:
      ++counters_.malformed;
      return {};
    case MadPacketError::kBadKey:
      ++counters_.bad_key;
      return {};
    case MadPacketError::kBadIcrc:
      return RouteUnverified(datagram, bytes, holder_of, now);
  }
  wire::CmView mad;
  if (wire::CmView::Parse(bytes, &mad) != wire::CmParseError::kOk) {
    ++counters_.no_cm;
    return {};
  }
  const Address address = AddressOf(mad);
  std::optional<uint16_t> slot;
  bool may_come_back = false;
  if (address.request) {
    slot = FindRequest({datagram.source, address.own_id, address.sidr},
                       address.service_id, datagram.local, holder_of, now);
    may_come_back = !all_known;
  } else if (address.remote_id == 0) {
    // A requester that gives up may not know our communication ID yet.
    const Request* const recent =
        Recent({datagram.source, address.own_id, false});
    if (recent != nullptr) slot = recent->slot;
    may_come_back = !all_known;
  } else {
    slot = transport::cm::PrefixOf(address.remote_id);
    const Holder holder = holder_of(*slot);
    may_come_back = holder == Holder::kMayComeBack;
    if (!IsProcess(holder)) slot.reset();
  }
  if (slot.has_value()) {
    ++counters_.handed_on;
    return {.what = What::kHandOn,
            .slot = *slot,
            .initial = address.request,
            .mad = bytes};
  }
  if (may_come_back) {
    ++counters_.waited;
    return {};
  }
  Verdict verdict = Answer(datagram, bytes, now);
  verdict.initial = address.request;
  verdict.service_id = address.service_id;
  return verdict;
}

Management::Verdict Management::RouteUnverified(const Datagram& datagram,
                                                std::span<const uint8_t> bytes,
                                                const HolderOf& holder_of,
                                                Time now) {
  wire::CmView mad;
  std::optional<uint16_t> slot;
  Address address;
  if (wire::CmView::Parse(bytes, &mad) == wire::CmParseError::kOk) {
    address = AddressOf(mad);
    slot = address.request ? services_.Match(address.service_id, datagram.local)
           : address.remote_id != 0
               ? std::optional(transport::cm::PrefixOf(address.remote_id))
               : std::nullopt;
  }
  const Holder holder = slot.has_value() ? holder_of(*slot) : Holder::kNobody;
  if (holder != Holder::kWantsUnverified &&
      (holder != Holder::kProcess ||
       !unverified_.Take(now / transport::kMillisecond))) {
    ++counters_.bad_icrc;
    return {};
  }
  ++counters_.handed_on;
  return {.what = What::kHandOn,
          .slot = *slot,
          .initial = address.request,
          .unverified = true,
          .mad = bytes};
}

Management::Verdict Management::Answer(const Datagram& datagram,
                                       std::span<const uint8_t> mad, Time now) {
  nobody_.OnMad({.local = datagram.local.address,
                 .remote = datagram.source,
                 .bytes = mad},
                now);
  transport::cm::OutgoingMad out;
  if (!nobody_.PollTransmit(&out)) {
    ++counters_.nobodys;
    return {};
  }
  ++counters_.answered;
  return {.what = What::kAnswer, .answer = out.bytes, .mad = {}};
}

}  // namespace rxe_user::broker
