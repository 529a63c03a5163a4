// The broker's part of `rxe-user stat`: a connection manager without messages
// of its own, and the counters of queue pair 1.
#include <utility>

#include "rxe_user/broker/server.h"
#include "rxe_user/observe/report_text.h"

namespace rxe_user::broker {
namespace {

ManagerReport ReportOf(size_t connections, const ManagementCounters& counters) {
  ManagerReport report;
  report.connections = connections;
  report.counters = {
      {"cm_broker_handed_on", counters.handed_on},
      {"cm_broker_answered", counters.answered},
      {"cm_broker_malformed", counters.malformed},
      {"cm_broker_bad_key", counters.bad_key},
      {"cm_broker_bad_icrc", counters.bad_icrc},
      {"cm_broker_no_cm", counters.no_cm},
      {"cm_broker_waited", counters.waited},
      {"cm_broker_nobodys", counters.nobodys},
      {"cm_broker_queue_full", counters.queue_full},
  };
  return report;
}

}  // namespace

void Server::OpenReport() {
  auto stat = StatServer::Open([this] {
    return ReportText(ReportOf(connections_.size(), qp1_.counters()));
  });
  if (!stat.ok()) return;
  boost::system::error_code error;
  stat_socket_.assign((*stat)->fd(), error);
  if (error) return;
  stat_server_ = *std::move(stat);
  AwaitReport();
}

void Server::AwaitReport() {
  stat_socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                          [this](boost::system::error_code error) {
                            if (error) return;
                            AnswerReports();
                          });
}

void Server::AnswerReports() {
  stat_server_->OnReadable();
  if (stat_server_->fd() >= 0) return AwaitReport();
  stat_retry_.expires_at(stat_server_->time());
  stat_retry_.async_wait([this](boost::system::error_code error) {
    if (!error) AnswerReports();
  });
}

}  // namespace rxe_user::broker
