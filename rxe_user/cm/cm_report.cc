#include "rxe_user/cm/cm_report.h"

#include <iterator>
#include <string>

#include "wire/cm.h"

namespace rxe_user {
namespace {

using transport::cm::Counters;
using transport::cm::MessageCounts;
using wire::CmAttribute;

struct Kind {
  CmAttribute attribute;
  const char* name;
};
constexpr Kind kKinds[] = {
    {CmAttribute::kReq, "req"},          {CmAttribute::kMra, "mra"},
    {CmAttribute::kRej, "rej"},          {CmAttribute::kRep, "rep"},
    {CmAttribute::kRtu, "rtu"},          {CmAttribute::kDreq, "dreq"},
    {CmAttribute::kDrep, "drep"},        {CmAttribute::kSidrReq, "sidr_req"},
    {CmAttribute::kSidrRep, "sidr_rep"}, {CmAttribute::kLap, "lap"},
    {CmAttribute::kApr, "apr"},
};
static_assert(std::size(kKinds) == transport::cm::kCmMessageKinds);

void Append(const std::string& group, const MessageCounts& counts,
            ManagerReport* report) {
  for (const Kind& kind : kKinds) {
    report->counters.emplace_back(group + "_" + kind.name,
                                  counts.Of(kind.attribute));
  }
}

}  // namespace

ManagerReport ReportOf(size_t connections, const Counters& counters) {
  ManagerReport report;
  report.connections = connections;
  Append("cm_tx_msgs", counters.tx_msgs, &report);
  Append("cm_tx_retries", counters.tx_retries, &report);
  Append("cm_rx_msgs", counters.rx_msgs, &report);
  Append("cm_rx_duplicates", counters.rx_duplicates, &report);
  const std::pair<const char*, uint64_t> ours[] = {
      {"cm_undelivered", counters.undelivered},
      {"cm_held_back", counters.held_back},
      {"cm_malformed", counters.malformed},
      {"cm_unknown_id", counters.unknown_id},
      {"cm_wrong_peer", counters.wrong_peer},
      {"cm_wrong_state", counters.wrong_state},
      {"cm_no_listener", counters.no_listener},
      {"cm_backlog_full", counters.backlog_full},
      {"cm_half_open_full", counters.half_open_full},
      {"cm_half_open_given_up", counters.half_open_given_up},
      {"cm_stale", counters.stale},
      {"cm_answers_limited", counters.answers_limited},
      {"cm_no_memory", counters.no_memory},
  };
  for (const auto& [name, value] : ours) {
    report.counters.emplace_back(name, value);
  }
  return report;
}

}  // namespace rxe_user
