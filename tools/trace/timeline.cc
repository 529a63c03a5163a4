#include "tools/trace/timeline.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "tools/trace/match.h"
#include "tools/trace/timeline_clocks.h"
#include "tools/trace/timeline_ends.h"
#include "transport/base/counters.h"
#include "transport/base/rare_event.h"
#include "wire/headers.h"
#include "wire/mad.h"

namespace trace {
namespace {

using wire::IpAddress;
using wire::pcapng::Direction;

// Packets from one address to one receiver (Packet::receiver).
using Flow = std::tuple<IpAddress, IpAddress, uint64_t>;
// A receiver, or a multicast group.
using Target = std::pair<IpAddress, uint64_t>;

uint64_t HashFlow(const Packet& packet) {
  uint64_t hash = packet.qpn;
  for (const IpAddress* address : {&packet.src, &packet.dst}) {
    for (const uint8_t byte : address->bytes) {
      hash = (hash ^ byte) * 0x100000001b3;
    }
  }
  return hash;
}

}  // namespace

class Joiner::Impl {
 public:
  explicit Impl(const std::vector<IpAddress>& locals) : locals_(locals) {}

  Timeline Join(const std::vector<const Recording*>& recordings) {
    t_ = Timeline();
    t_.recordings = recordings;
    const size_t files = t_.recordings.size();
    t_.ends = known_ends_;
    end_indices_.clear();
    for (size_t e = 0; e < t_.ends.size(); ++e) {
      end_indices_[{t_.ends[e].file, t_.ends[e].address, t_.ends[e].qpn}] = e;
    }
    use_icrcs_ = std::all_of(t_.recordings.begin(), t_.recordings.end(),
                             [](const Recording* r) { return r->has_icrcs; });
    NoteMissingPackets();
    FindDirections();
    FindOwners();
    clocks_.Compare(
        [this](size_t file, Direction direction) {
          return Sightings(file, direction);
        },
        &t_);
    last_times_.clear();
    for (size_t f = 0; f < files; ++f) last_times_.push_back(LastTime(f));
    FindQueuePairs();
    flows_.clear();
    MakeFlows();
    for (auto& [flow, packets] : flows_) JoinFlow(packets);
    AddEvents();
    Finish();
    known_ends_ = t_.ends;
    return std::move(t_);
  }

 private:
  struct Seen {
    const Packet* packet;
    size_t file;
  };
  struct FlowPackets {
    std::vector<Seen> sent;
    std::map<size_t, std::vector<Seen>> received;  // by file
    std::vector<Seen> passing;  // of files that are at neither end
  };

  int64_t Time(const Seen& seen) const {
    return seen.packet->time - t_.offsets[seen.file];
  }
  uint64_t Key(const Packet& packet) const {
    return (use_icrcs_ ? packet.key : packet.key_short) ^ HashFlow(packet);
  }

  // --- Directions.

  Direction DirectionOf(size_t file, const Packet& packet) const {
    if (packet.direction != Direction::kUnknown) return packet.direction;
    if (!own_[file]) return Direction::kUnknown;
    return packet.src == *own_[file] ? Direction::kSent : Direction::kReceived;
  }

  void NoteMissingPackets() {
    for (const Recording* r : t_.recordings) {
      if (r->cut_off_merged != 0) {
        t_.notes.push_back(r->path +
                           ": cut-off merged frames are left out: capture "
                           "with -s 0");
      }
      if (!r->is_whole || !r->packets.empty() || r->packets_before != 0) {
        continue;
      }
      t_.notes.push_back(
          r->path + " has no packets: " +
          (r->about ? "its program sent and received none on an RDMA device. "
                      "--text shows its calls and events"
                    : "capture UDP port 4791 while the program communicates"));
    }
  }

  // For a capture without directions: the host's own address is the one whose
  // packets appear in another file with the largest mean delay. Clock
  // differences do not matter.
  void FindDirections() {
    const size_t files = t_.recordings.size();
    own_.resize(files);
    for (size_t f = 0; f < files; ++f) {
      const Recording& recording = *t_.recordings[f];
      if (recording.has_directions || own_[f]) continue;
      if (recording.packets.empty()) continue;
      if (f < locals_.size() && !locals_[f].is_unspecified()) {
        own_[f] = locals_[f];
        continue;
      }
      for (size_t g = 0; g < files && !own_[f]; ++g) {
        if (g != f) own_[f] = LatestElsewhere(f, g);
      }
      if (!own_[f]) {
        t_.notes.push_back(
            recording.path +
            " does not tell sent from received packets, and there is no file "
            "of the other end: each is drawn where it was seen");
      }
    }
  }

  std::optional<IpAddress> LatestElsewhere(size_t f, size_t g) const {
    std::map<uint64_t, std::pair<const Packet*, int>> here;
    for (const Packet& p : t_.recordings[f]->packets) {
      auto& [packet, count] = here[Key(p)];
      packet = &p;
      ++count;
    }
    std::map<IpAddress, std::pair<double, int>> later;
    for (const Packet& p : t_.recordings[g]->packets) {
      const auto same = here.find(Key(p));
      if (same == here.end() || same->second.second != 1) continue;
      auto& [sum, count] = later[p.src];
      sum += static_cast<double>(p.time - same->second.first->time);
      ++count;
    }
    if (later.size() < 2) return std::nullopt;
    const auto mean = [](const auto& entry) {
      return entry.second.first / entry.second.second;
    };
    return std::max_element(
               later.begin(), later.end(),
               [&](const auto& a, const auto& b) { return mean(a) < mean(b); })
        ->first;
  }

  // --- Owners of queue pairs.

  void FindOwners() {
    constexpr auto kUnknownQp =
        static_cast<uint8_t>(transport::Disposition::kUnknownQp);
    own_addresses_.clear();
    owners_.clear();
    for (size_t f = 0; f < t_.recordings.size(); ++f) {
      for (const Packet& p : t_.recordings[f]->packets) {
        const Direction direction = DirectionOf(f, p);
        if (direction == Direction::kReceived) {
          // If the queue pair does not exist here, the packet is for another
          // process of the host.
          const bool foreign = p.dropped && p.disposition == kUnknownQp;
          if (!foreign) ++counts_[{p.dst, p.receiver}][f];
          if (!p.dst.is_multicast()) addresses_[p.dst].insert(f);
        } else if (direction == Direction::kSent) {
          addresses_[p.src].insert(f);
        }
      }
    }
    for (const auto& [target, files] : counts_) {
      if (target.first.is_multicast()) {
        for (const auto& [file, count] : files) owners_[target].push_back(file);
      } else {
        owners_[target] = {std::max_element(files.begin(), files.end(),
                                            [](const auto& a, const auto& b) {
                                              return a.second < b.second;
                                            })
                               ->first};
      }
    }
  }

  // Whether the receiver belongs to the process of the recording; true if that
  // is unknown.
  bool IsOwn(size_t file, uint64_t receiver) const {
    return !t_.recordings[file]->about || receiver <= wire::kGsiQpn ||
           receiver > wire::kQpnMask ||
           own_qpns_.contains({file, static_cast<uint32_t>(receiver)});
  }

  // The files in which a packet from `file` to `target` should appear.
  std::vector<size_t> OwnersOf(const Target& target, size_t file) const {
    const auto known = owners_.find(target);
    if (known != owners_.end()) return known->second;
    const auto there = addresses_.find(target.first);
    if (there == addresses_.end()) return {};
    if (there->second.size() == 1) {
      const size_t owner = *there->second.begin();
      if (owner == file && !IsOwn(file, target.second)) return {};
      return {owner};
    }
    if (there->second.size() == 2 && there->second.contains(file)) {
      return {*there->second.begin() == file ? *there->second.rbegin()
                                             : *there->second.begin()};
    }
    return {};
  }

  // --- Clocks.

  std::vector<Sighting> Sightings(size_t file, Direction direction) const {
    std::vector<Sighting> sightings;
    for (const Packet& p : t_.recordings[file]->packets) {
      if (DirectionOf(file, p) == direction) {
        sightings.push_back({Key(p), p.arrival()});
      }
    }
    return sightings;
  }

  int64_t LastTime(size_t file) const {
    int64_t last = kNoTime;
    for (const Packet& p : t_.recordings[file]->packets) {
      last = std::max(last, p.time);
    }
    for (const Event& e : t_.recordings[file]->events) {
      last = std::max(last, e.header().time);
    }
    return last == kNoTime ? last : last - t_.offsets[file];
  }

  // --- Packets.

  void MakeFlows() {
    for (size_t f = 0; f < t_.recordings.size(); ++f) {
      for (const Packet& p : t_.recordings[f]->packets) {
        FlowPackets& flow = flows_[{p.src, p.dst, p.receiver}];
        switch (DirectionOf(f, p)) {
          case Direction::kSent:
            flow.sent.push_back({&p, f});
            break;
          case Direction::kReceived: {
            const auto owners = OwnersOf({p.dst, p.receiver}, f);
            if (owners.empty() || std::count(owners.begin(), owners.end(), f)) {
              flow.received[f].push_back({&p, f});
            }
            break;
          }
          case Direction::kUnknown:
            flow.passing.push_back({&p, f});
            break;
        }
      }
    }
  }

  size_t EndOf(size_t file, const IpAddress& address, uint32_t qpn) {
    const auto key = std::make_tuple(file, address, qpn);
    const auto [at, is_new] = end_indices_.try_emplace(key, t_.ends.size());
    if (is_new) t_.ends.push_back({file, address, qpn, "", ""});
    return at->second;
  }

  void Add(const Seen* sent, const Seen* received, size_t to_file, Fate fate,
           bool ambiguous = false, bool overtaken = false) {
    Arrow arrow;
    const Packet& p = sent != nullptr ? *sent->packet : *received->packet;
    size_t from_file = kNone;
    if (sent != nullptr) {
      arrow.local_qpn = p.own_qpn;
      arrow.sent = sent->packet;
      arrow.sent_file = from_file = sent->file;
      arrow.t0 = Time(*sent);
    }
    if (received != nullptr) {
      arrow.received = received->packet;
      arrow.received_file = received->file;
      arrow.t1 = Time(*received);
    }
    if (from_file == kNone) {
      // The sender may have a file that lacks the packet, or no file.
      const auto there = addresses_.find(p.src);
      if (there != addresses_.end() && there->second.size() == 1 &&
          SenderHasFile(p, to_file)) {
        from_file = *there->second.begin();
      }
    }
    // If a process sends to itself, its queue pairs are the ends.
    const bool to_itself = from_file != kNone && from_file == to_file;
    const uint32_t sender =
        arrow.local_qpn > wire::kGsiQpn ? arrow.local_qpn : kPartner;
    arrow.from = EndOf(from_file, p.src, to_itself ? sender : 0);
    arrow.to = EndOf(to_file,
                     p.dst.is_multicast() && to_file != kNone
                         ? OwnAddress(to_file, p.dst)
                         : p.dst,
                     to_itself ? p.qpn : 0);
    arrow.fate = fate;
    if (fate == Fate::kArrived && received != nullptr &&
        received->packet->dropped) {
      arrow.fate = Fate::kDropped;
    }
    arrow.ambiguous = ambiguous;
    // Our device processes an ACK before the requests of its GRO batch, so
    // their order in the file is not the order of arrival.
    arrow.overtaken = overtaken && !p.is_acknowledge();
    t_.arrows.push_back(arrow);
  }

  IpAddress OwnAddress(size_t file, const IpAddress& otherwise) {
    if (own_addresses_.empty()) {
      for (const auto& [address, files] : addresses_) {
        for (const size_t f : files) own_addresses_.try_emplace(f, address);
      }
    }
    const auto own = own_addresses_.find(file);
    return own != own_addresses_.end() ? own->second : otherwise;
  }

  void JoinFlow(FlowPackets& flow) {
    for (const Seen& seen : flow.passing) {
      Arrow arrow;
      arrow.sent = seen.packet;
      arrow.sent_file = seen.file;
      arrow.t0 = arrow.t1 = Time(seen);
      arrow.from = EndOf(kNone, seen.packet->src, 0);
      arrow.to = EndOf(kNone, seen.packet->dst, 0);
      t_.arrows.push_back(arrow);
    }
    const auto by_time = [&](const Seen& a, const Seen& b) {
      return Time(a) < Time(b);
    };
    std::stable_sort(flow.sent.begin(), flow.sent.end(), by_time);

    std::set<size_t> there;
    for (const auto& [file, seen] : flow.received) there.insert(file);
    if (!flow.sent.empty()) {
      const Packet& p = *flow.sent[0].packet;
      for (const size_t file :
           OwnersOf({p.dst, p.receiver}, flow.sent[0].file)) {
        there.insert(file);
      }
    }
    if (there.empty()) {
      for (const Seen& sent : flow.sent) {
        Add(&sent, nullptr, kNone, Fate::kUnseen);
      }
      return;
    }
    for (const size_t file : there) {
      JoinAt(flow.sent, flow.received[file], file);
    }
  }

  // Sorts received packets in the order of the path. Their order in the file
  // may differ: our device processes an ACK before the requests of its GRO
  // batch, which have the same kernel time.
  static void SortByArrival(std::vector<Seen>* received) {
    const auto is_known = [](const Seen& seen) {
      return seen.packet->kernel_time != 0;
    };
    if (!std::all_of(received->begin(), received->end(), is_known)) return;
    std::stable_sort(
        received->begin(), received->end(), [](const Seen& a, const Seen& b) {
          return std::pair(a.packet->kernel_time, a.packet->is_acknowledge()) <
                 std::pair(b.packet->kernel_time, b.packet->is_acknowledge());
        });
  }

  void JoinAt(const std::vector<Seen>& sent, std::vector<Seen>& received,
              size_t file) {
    SortByArrival(&received);
    const auto sightings = [&](const std::vector<Seen>& packets) {
      std::vector<Sighting> all;
      for (const Seen& seen : packets) {
        all.push_back({Key(*seen.packet),
                       seen.packet->arrival() - t_.offsets[seen.file],
                       seen.packet->hop_limit});
      }
      return all;
    };
    const Match match = MatchPackets(sightings(sent), sightings(received));
    int64_t longest = 0;  // the longest delay
    for (size_t i = 0; i < sent.size(); ++i) {
      const size_t j = match.received[i];
      if (j == kNone) continue;
      longest = std::max(longest, Time(received[j]) - Time(sent[i]));
    }
    for (size_t i = 0; i < sent.size(); ++i) {
      const size_t j = match.received[i];
      if (j != kNone) {
        Add(&sent[i], &received[j], file, Fate::kArrived, match.ambiguous[i],
            match.overtaken[i]);
        continue;
      }
      const bool after =
          Time(sent[i]) >
          std::min(last_times_[file], EndOfQueuePair(file, sent[i]) - longest);
      Add(&sent[i], nullptr, file, after ? Fate::kAfterEnd : Fate::kLost,
          match.ambiguous[i]);
    }
    for (size_t j = 0; j < received.size(); ++j) {
      if (match.sent[j] != kNone) continue;
      const size_t original = match.duplicate_of[j];
      if (original != kNone) {
        Add(&sent[original], &received[j], file, Fate::kDuplicate);
      } else {
        Add(nullptr, &received[j], file,
            sent.empty() && !SenderHasFile(*received[j].packet, file)
                ? Fate::kReceived
                : Fate::kStranger);
      }
    }
  }

  // The time at which the destination of a packet was destroyed for good, or
  // INT64_MAX.
  int64_t EndOfQueuePair(size_t file, const Seen& sent) const {
    const auto end = destroyed_.find({file, sent.packet->qpn});
    return end == destroyed_.end() ? std::numeric_limits<int64_t>::max()
                                   : end->second;
  }

  void FindQueuePairs() {
    using transport::RareEventKind;
    for (size_t f = 0; f < t_.recordings.size(); ++f) {
      for (const Event& event : t_.recordings[f]->events) {
        const std::pair<size_t, uint32_t> key = {f, event.header().qpn};
        if (key.second != 0) own_qpns_.insert(key);
        if (event.As<rxe_user::trace::QpStateEvent>()) destroyed_.erase(key);
        const auto incident = event.As<rxe_user::trace::IncidentEvent>();
        if (incident &&
            incident->kind == static_cast<uint8_t>(RareEventKind::kDestroyed)) {
          destroyed_[key] = event.header().time - t_.offsets[f];
        }
      }
    }
  }

  // `file`: that of the receiver. A recording has all packets that its process
  // sent; packets from its address that it lacks are another process's.
  bool SenderHasFile(const Packet& packet, size_t file) const {
    const auto there = addresses_.find(packet.src);
    if (there == addresses_.end()) return false;
    return there->second.size() > 1 || *there->second.begin() != file ||
           !t_.recordings[file]->about;
  }

  // --- Events and the rest.

  void AddEvents() {
    for (size_t f = 0; f < t_.recordings.size(); ++f) {
      for (const Event& event : t_.recordings[f]->events) {
        t_.events.push_back({f, &event, event.header().time - t_.offsets[f]});
      }
    }
    std::stable_sort(t_.events.begin(), t_.events.end(),
                     [](const TimedEvent& a, const TimedEvent& b) {
                       return a.time < b.time;
                     });
  }

  void Finish() {
    FindPartners(&t_);
    std::stable_sort(
        t_.arrows.begin(), t_.arrows.end(),
        [](const Arrow& a, const Arrow& b) { return a.start() < b.start(); });
    SortEnds(known_ends_.size(), &t_);
    if (is_later_) {
      t_.first = first_;
      return;
    }
    is_later_ = true;
    t_.first = std::numeric_limits<int64_t>::max();
    if (!t_.arrows.empty()) t_.first = t_.arrows[0].start();
    if (!t_.events.empty()) t_.first = std::min(t_.first, t_.events[0].time);
    if (t_.arrows.empty() && t_.events.empty()) t_.first = 0;
    first_ = t_.first;
  }

  const std::vector<IpAddress> locals_;
  // --- From earlier parts.
  std::vector<End> known_ends_;
  TimelineClocks clocks_;
  bool is_later_ = false;
  int64_t first_ = 0;
  std::vector<std::optional<IpAddress>> own_;
  // Numbers of packets that arrived, by file.
  std::map<Target, std::map<size_t, size_t>> counts_;
  std::map<IpAddress, std::set<size_t>> addresses_;  // files by own address
  // When queue pairs were destroyed, by file and number; on the clock of the
  // first file.
  std::map<std::pair<size_t, uint32_t>, int64_t> destroyed_;
  std::set<std::pair<size_t, uint32_t>> own_qpns_;  // by file
  // --- For this part.
  Timeline t_;
  bool use_icrcs_ = false;
  std::map<size_t, IpAddress> own_addresses_;  // the first, by file
  std::map<Target, std::vector<size_t>> owners_;
  std::vector<int64_t> last_times_;
  std::map<Flow, FlowPackets> flows_;
  std::map<std::tuple<size_t, IpAddress, uint32_t>, size_t> end_indices_;
};

const char* FateName(Fate fate) {
  constexpr const char* kNames[] = {"arrived",   "lost",      "dropped",
                                    "duplicate", "after-end", "unseen",
                                    "received",  "stranger"};
  static_assert(std::size(kNames) == static_cast<size_t>(Fate::kStranger) + 1);
  return kNames[static_cast<size_t>(fate)];
}

const char* FateName(const Arrow& arrow) {
  const bool is_dropped = arrow.fate == Fate::kReceived && arrow.was_dropped();
  return FateName(is_dropped ? Fate::kDropped : arrow.fate);
}

Joiner::Joiner(const std::vector<IpAddress>& locals)
    : impl_(std::make_unique<Impl>(locals)) {}

Joiner::~Joiner() = default;

Timeline Joiner::Join(const std::vector<const Recording*>& recordings) {
  return impl_->Join(recordings);
}

Timeline MakeTimeline(const std::vector<const Recording*>& recordings,
                      const std::vector<IpAddress>& locals) {
  return Joiner(locals).Join(recordings);
}

}  // namespace trace
