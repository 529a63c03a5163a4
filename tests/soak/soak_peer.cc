// A process of the soak test (run). It creates, connects, uses and drops links
// by commands from stdin, and reports on stdout, with one JSON object per line
// both ways. `run` defines the commands and checks the reports.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "rxe_user/testing/ring_descriptors.h"
#include "tests/soak/link.h"
#include "tests/soak/pattern.h"
#include "tests/soak/station.h"

namespace soak {
namespace {

using nlohmann::json;

constexpr int kRocePort = 4791;
constexpr int kFirstSourcePort = 0xc000;
constexpr int64_t kStatisticsMs = 200;
constexpr int kIdleMs = 5;  // links have deadlines this short
constexpr int kBatch = 32;

void Say(const json& what) {
  const std::string line = what.dump() + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() ||
      std::fflush(stdout) != 0) {
    _exit(4);  // the reader is gone
  }
}

// The port of an IP socket, or 0 for other descriptors.
int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return 0;
  }
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return 0;
  // The port is at the same offset for both families.
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// The number of descriptors of a ring of shared memory, if `fd` is its
// connection: the connection itself and, at the sender, the one that wakes the
// receiver. 0 if `fd` is not such a connection.
size_t DescriptorsOfRing(int fd) {
  const auto is_ring = [fd](auto name_of) {
    sockaddr_un name = {};
    socklen_t length = sizeof(name);
    return name_of(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
           name.sun_family == AF_UNIX && length > sizeof(sa_family_t) + 1 &&
           std::string_view(name.sun_path + 1, length - sizeof(sa_family_t) - 1)
               .starts_with("rxe_user-memory-");
  };
  int listens = 0;
  socklen_t length = sizeof(listens);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 ||
      listens != 0) {
    return 0;
  }
  if (is_ring(getpeername)) return 2;  // this process is the sender
  return is_ring(getsockname) ? 1 : 0;
}

std::vector<int> OpenDescriptors() {
  std::vector<int> descriptors;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    descriptors.push_back(std::atoi(entry.path().filename().c_str()));
  }
  // The descriptor of the directory itself is closed by now.
  std::erase_if(descriptors, [](int fd) { return fcntl(fd, F_GETFD) < 0; });
  return descriptors;
}

size_t ResidentKiB() {
  size_t all = 0;
  size_t resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr || std::fscanf(file, "%zu %zu", &all, &resident) != 2) {
    Die("/proc/self/statm", errno);
  }
  std::fclose(file);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE)) / 1024;
}

// The total time that this thread has waited for a processor.
uint64_t WaitedMs() {
  uint64_t ran = 0;
  uint64_t waited = 0;
  // Both in ns. Missing in kernels without CONFIG_SCHED_INFO.
  if (std::FILE* file = std::fopen("/proc/thread-self/schedstat", "re")) {
    if (std::fscanf(file, "%" SCNu64 " %" SCNu64, &ran, &waited) != 2) {
      waited = 0;
    }
    std::fclose(file);
  }
  return waited / 1'000'000;
}

// Sets the receive buffer of the library's receiving sockets to `bytes`.
// Returns their number.
int SetReceiveBuffers(int bytes) {
  int count = 0;
  for (const int fd : OpenDescriptors()) {
    if (PortOf(fd) != kRocePort) continue;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) !=
            0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) != 0) {
      Die("SO_RCVBUF", errno);
    }
    ++count;
  }
  return count;
}

// Whether the event is about an interface.
bool IsOfPort(ibv_event_type type) {
  return type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_PORT_ERR ||
         type == IBV_EVENT_GID_CHANGE;
}

class Peer {
 public:
  // `poll`: never sleeps, like programs that need the lowest latency.
  Peer(uint64_t seed, bool poll) : station_(seed), seed_(seed), poll_(poll) {}

  void Run() {
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    while (!end_) {
      bool busy = ReadCommands();
      for (const auto& device : station_.devices()) {
        busy |= TakeCompletions(*device);
        TakeEvents(*device);
      }
      for (auto& [id, link] : links_) busy |= link->Pump();
      const int64_t now = NowMs();
      if (now - said_ms_ >= kStatisticsMs) {
        said_ms_ = now;
        SayStatistics();
      }
      if (!busy && !poll_) Wait();
    }
    links_.clear();
  }

 private:
  bool ReadCommands() {
    char buffer[4096];
    ssize_t n;
    while ((n = read(STDIN_FILENO, buffer, sizeof(buffer))) > 0) {
      input_.append(buffer, static_cast<size_t>(n));
    }
    if (n == 0) _exit(4);  // `run` has ended
    bool any = false;
    for (size_t end; (end = input_.find('\n')) != std::string::npos;) {
      const json command = json::parse(input_.substr(0, end));
      input_.erase(0, end + 1);
      Obey(command);
      any = true;
    }
    return any;
  }

  void Obey(const json& command) {
    const std::string what = command["do"];
    if (what == "end") {
      end_ = true;
      return;
    }
    if (what == "buffers") {
      Say({{"is", "buffers"},
           {"sockets", SetReceiveBuffers(command["bytes"])}});
      return;
    }
    const int id = command["id"];
    if (what == "make") {
      Make(id, command);
      return;
    }
    const auto found = links_.find(id);
    if (found == links_.end() && what == "drop") {
      // The command crossed with the refusal.
      Say({{"is", "dropped"},
           {"id", id},
           {"generation", command["generation"]}});
      return;
    }
    if (found == links_.end()) Die("there is no link " + std::to_string(id), 0);
    Link& link = *found->second;
    if (what == "connect") {
      const int error =
          link.Connect(command["remote"], command["peer"], command["peer_key"]);
      Say({{"is", error == 0 ? "connected" : "refused"},
           {"id", id},
           {"generation", link.options().generation},
           {"error", error}});
    } else if (what == "start") {
      link.Start();
    } else if (what == "quiet") {
      link.BeQuiet();
    } else if (what == "drop") {
      link.Drop();
    } else {
      Die("unknown command " + what, EINVAL);
    }
  }

  void Make(int id, const json& command) {
    LinkOptions options;
    options.id = id;
    options.generation = command["generation"];
    options.reliable = command["reliable"];
    options.shared_receives = command["shared"];
    options.timeout = command["timeout"];
    options.mtu = static_cast<ibv_mtu>(command["mtu"].get<int>());
    links_.erase(id);
    int gid_index = -1;
    Device* const device = station_.Find(command["local"], &gid_index);
    if (device == nullptr) {
      Say({{"is", "refused"},
           {"id", id},
           {"generation", options.generation},
           {"error", ENODEV}});
      return;
    }
    const uint64_t key =
        Mix(seed_, static_cast<uint64_t>(id) << 32 |
                       static_cast<uint64_t>(options.generation));
    auto link = std::make_unique<Link>(options, device, gid_index, key, Say);
    json made = {{"is", "made"},
                 {"id", id},
                 {"generation", options.generation},
                 {"peer", link->Introduction()},
                 {"peer_key", station_.key()}};
    by_qpn_[link->qpn()] = id;
    links_[id] = std::move(link);
    Say(made);
  }

  Link* Find(uint32_t qpn) {
    const auto id = by_qpn_.find(qpn);
    if (id == by_qpn_.end()) return nullptr;
    const auto link = links_.find(id->second);
    if (link == links_.end() || link->second->qpn() != qpn) return nullptr;
    return link->second.get();
  }

  bool TakeCompletions(Device& device) {
    ibv_wc wc[kBatch];
    const int count = ibv_poll_cq(device.cq(), kBatch, wc);
    if (count < 0) Die("ibv_poll_cq", errno);
    for (int i = 0; i < count; ++i) {
      Link* const link = Find(wc[i].qp_num);
      if (link == nullptr) {
        Die("a completion of queue pair " + std::to_string(wc[i].qp_num) +
                ", which is gone",
            0);
      }
      link->OnCompletion(wc[i]);
    }
    return count != 0;
  }

  void TakeEvents(Device& device) {
    ibv_async_event event;
    while (ibv_get_async_event(device.context(), &event) == 0) {
      if (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED) {
        // The completions before the event are in the queue by now.
        while (TakeCompletions(device)) {
        }
        if (Link* const link = Find(event.element.qp->qp_num)) {
          link->OnLastReceive();
        }
      } else {
        Say({{"is", "event"},
             {"device", ibv_get_device_name(device.context()->device)},
             {"of_port", IsOfPort(event.event_type)},
             {"type", ibv_event_type_str(event.event_type)}});
      }
      ibv_ack_async_event(&event);
    }
  }

  // Waits for a completion, a command, or some milliseconds.
  void Wait() {
    pollfd fds[8] = {{STDIN_FILENO, POLLIN, 0}};
    nfds_t count = 1;
    for (const auto& device : station_.devices()) {
      if (ibv_req_notify_cq(device->cq(), 0) != 0) {
        Die("ibv_req_notify_cq", errno);
      }
      fds[count++] = {device->channel()->fd, POLLIN, 0};
      fds[count++] = {device->context()->async_fd, POLLIN, 0};
    }
    for (const auto& device : station_.devices()) {
      if (TakeCompletions(*device)) return;
    }
    (void)::poll(fds, count, kIdleMs);
    for (const auto& device : station_.devices()) {
      ibv_cq* cq;
      void* context;
      while (ibv_get_cq_event(device->channel(), &cq, &context) == 0) {
        ibv_ack_cq_events(cq, 1);
      }
    }
  }

  void SayStatistics() {
    // Counted separately, since their number changes: sending sockets, opened
    // when flows need them; descriptors of rings of shared memory, made when
    // flows have sent for some time; io_urings, of which a lane gets a second
    // one when it is polled for long.
    size_t senders = 0;
    size_t rings = 0;
    size_t io_urings = 0;
    size_t others = 0;
    for (const int fd : OpenDescriptors()) {
      const bool of_ring =
          rxe_user::IsOfRing("/proc/self/fd/" + std::to_string(fd));
      ++(of_ring ? io_urings
                 : (PortOf(fd) >= kFirstSourcePort ? senders : others));
      rings += DescriptorsOfRing(fd);
    }
    json links = json::array();
    for (const auto& [id, link] : links_) links.push_back(link->Statistics());
    Say({{"is", "statistics"},
         {"waited_ms", WaitedMs()},
         {"resident_kib", ResidentKiB()},
         {"descriptors", others - rings},
         {"rings", rings},
         {"io_urings", io_urings},
         {"senders", senders},
         {"links", links}});
  }

  Station station_;
  const uint64_t seed_;
  const bool poll_;
  std::map<int, std::unique_ptr<Link>> links_;
  std::map<uint32_t, int> by_qpn_;
  std::string input_;
  int64_t said_ms_ = 0;
  bool end_ = false;
};

}  // namespace
}  // namespace soak

int main(int argc, char** argv) {
  if (argc != 3 ||
      (std::string(argv[2]) != "poll" && std::string(argv[2]) != "wait")) {
    std::fputs("usage: soak_peer SEED poll|wait    (started by run)\n", stderr);
    return 2;
  }
  soak::Peer peer(std::strtoull(argv[1], nullptr, 10),
                  std::string(argv[2]) == "poll");
  peer.Run();
  return 0;
}
