// What is in flight, and how much of the path's window it may have
// (docs/design/loss-and-congestion.md). A queue pair whose peer is
// silent takes nothing from others that share the path: its packets do not
// count in the window, and it may have a share of that size in flight and no
// more. Whoever begins to send after another one has fallen silent has its
// share, too, until there is an answer: those who have died with that one show
// themselves before they have filled the window again.
#include <algorithm>

#include "transport/rc/requester.h"

namespace transport {
namespace {

// In a row, which send several packets again. Then it is one at a time.
constexpr uint8_t kProbesOfMany = 3;

}  // namespace

void Requester::SyncFlight() {
  const uint64_t sent_to = CostBeforeAt(snd_nxt_index_, snd_nxt_);
  uint64_t sent = sent_to - CostBeforeAt(queue_.head(), snd_una_);
  if (HasMissing() && snd_nxt_ >= missing_->known_to()) {
    const uint64_t known = missing_->known_to();
    const uint64_t beyond =
        sent_to - CostBefore(queue_.at(IndexOf(known - 1)), known);
    sent = std::min(sent, beyond + missing_->missing() * PacketCost());
  }
  const uint64_t wanted =
      kept_ == 0 ? sent : sent - std::min<uint64_t>(kept_, sent / 8 * 7);
  if (wanted == flight_) return;
  if (standing_ == Standing::kUnanswered) {
    wanted > flight_ ? path()->OnSentUnanswered(wanted - flight_)
                     : path()->OnGoneUnanswered(flight_ - wanted);
  } else if (wanted > flight_) {
    path()->OnSent(wanted - flight_);
  } else {
    path()->OnGone(flight_ - wanted);
  }
  flight_ = wanted;
}

void Requester::BeginFlight() {
  if (!running_ || silences_seen_ == path()->silences()) return;
  switch (standing_) {
    case Standing::kUnanswered:
      // New, and others on the path are answered.
      if (snd_max_ != snd_una_ || !path()->answered()) break;
      if (path()->has_unanswered()) {
        standing_ = Standing::kDoubted;
      } else {
        standing_ = Standing::kAnswered;
        silences_seen_ = path()->silences();
      }
      break;
    case Standing::kAnswered:
      standing_ = Standing::kDoubted;
      break;
    case Standing::kDoubted:
      break;
  }
}

void Requester::NoteAnswer(bool good) {
  if (standing_ == Standing::kUnanswered) path()->OnAnswer(flight_);
  standing_ = Standing::kAnswered;
  silences_seen_ = path()->silences();
  // Others' timeouts were not the path's: what was sent since came through.
  if (good && probes_ == 0 && !timed_out_) path()->UndoTimeout();
}

void Requester::FallSilent() {
  if (standing_ == Standing::kUnanswered) return;
  path()->OnSilence(flight_, standing_ == Standing::kAnswered);
  standing_ = Standing::kUnanswered;
  silences_seen_ = 0;
}

uint64_t Requester::ShareRoom() const {
  uint64_t share = std::max(path()->share(), PacketCost());
  // Several packets that are sent again, and their answers, may be lost.
  // But if all of them always are, there are too many.
  if ((probes_ > 0 && probes_ <= kProbesOfMany) || retries_ > 0) {
    share = std::max(share, Path::kLeastWindow);
  }
  return share > flight_ ? share - flight_ : 0;
}

uint64_t Requester::PacketsAllowed() const {
  if (!LimitedToShare()) return path()->MaySendPackets(PacketCost());
  const uint64_t share = ShareRoom() / PacketCost();
  if (standing_ != Standing::kUnanswered) {
    return std::min(share, path()->MaySendPackets(PacketCost()));
  }
  return WindowAllows(PacketCost()) ? share : 0;
}

}  // namespace transport
