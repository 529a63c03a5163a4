#include "rxe_user/observe/capture.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "rxe_user/base/no_cancellation.h"
#include "rxe_user/base/service_thread.h"
#include "rxe_user/base/users.h"
#include "rxe_user/base/warn_once.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/pcap.h"

namespace rxe_user {
namespace {

using transport::Direction;
using transport::Disposition;
using transport::ObservedPacket;

// The number of names that are tried.
constexpr int kMostNames = 100;
// The headers before a packet in the file.
constexpr size_t kMaxHeaders = 16 + wire::kCookedSize + wire::kMaxIpUdpSize;

std::string WithPid(std::string name, bool* had_pid) {
  const std::string pid = std::to_string(::getpid());
  *had_pid = false;
  for (size_t at = 0; (at = name.find("%p", at)) != std::string::npos;
       at += pid.size()) {
    name.replace(at, 2, pid);
    *had_pid = true;
  }
  return name;
}

int64_t WallClock() {
  timespec t;
  ::clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * transport::kSecond + t.tv_nsec;
}

// Whether `path` names a descriptor of this process; /dev/stdout is such a
// link.
bool NamesOwnDescriptor(const std::string& path) {
  return path == "/dev/stdout" || path == "/dev/stderr" ||
         path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

// A pipe without a name, which can only be reached through a descriptor.
bool IsUnnamedPipe(int fd) {
  struct statfs s {};
  return ::fstatfs(fd, &s) == 0 && s.f_type == PIPEFS_MAGIC;
}

enum class FileKind { kShared, kOther, kFailed };

// Classifies the file at `path`. kShared: a character device or a pipe of this
// user, with its status in `*file`; a link to one is followed if the link
// belongs to this user or root. kOther: anything else, which gets no packets,
// whoever created it. kFailed: errno is set.
FileKind Classify(const std::string& path, struct stat* file) {
  const UniqueFd named(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!named.valid()) {  // ENOENT: just removed
    return errno == ENOENT ? FileKind::kOther : FileKind::kFailed;
  }
  if (::fstat(named.get(), file) != 0) return FileKind::kFailed;
  const bool own_descriptor = NamesOwnDescriptor(path);
  UniqueFd target;
  if (S_ISLNK(file->st_mode)) {
    if (!own_descriptor && file->st_uid != 0 && !IsOwnUser(file->st_uid)) {
      return FileKind::kOther;
    }
    target.Reset(::open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!target.valid()) {
      return errno == ENOENT || errno == ELOOP ? FileKind::kOther
                                               : FileKind::kFailed;
    }
    if (::fstat(target.get(), file) != 0) return FileKind::kFailed;
  }
  if (S_ISDIR(file->st_mode)) {
    errno = EISDIR;
    return FileKind::kFailed;
  }
  const bool own_pipe =
      S_ISFIFO(file->st_mode) &&
      (IsOwnUser(file->st_uid) ||
       IsUnnamedPipe(target.valid() ? target.get() : named.get()));
  return S_ISCHR(file->st_mode) || own_pipe ? FileKind::kShared
                                            : FileKind::kOther;
}

// Opens the pipe or device `seen`, which one capture can use. Invalid on
// failure, with errno set.
UniqueFd OpenShared(const std::string& path, const struct stat& seen) {
  UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat opened {};
  if (!fd.valid() || ::fstat(fd.get(), &opened) != 0) return UniqueFd();
  if (opened.st_dev != seen.st_dev || opened.st_ino != seen.st_ino) {
    errno = EPERM;  // another file has replaced it
    return UniqueFd();
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return UniqueFd();
  // The writer may block.
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  return fd;
}

// Opens `*path` or, if it exists, a file beside it; `*path` is its name then.
UniqueFd OpenNew(std::string* path, bool* is_file) {
  bool had_pid;
  const std::string wanted = WithPid(*path, &had_pid);
  std::string name = wanted;
  *is_file = true;
  for (int i = 1; i <= kMostNames; ++i) {
    UniqueFd fd(::open(name.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOCTTY | O_CLOEXEC,
                       0600));
    if (fd.valid() || errno != EEXIST) {
      *path = name;
      return fd;
    }
    struct stat there;
    switch (Classify(name, &there)) {
      case FileKind::kShared:
        *path = name;
        *is_file = false;
        return OpenShared(name, there);
      case FileKind::kFailed:
        *path = name;
        return UniqueFd();
      case FileKind::kOther:
        break;
    }
    name = wanted;
    if (!had_pid) name += "." + std::to_string(::getpid());
    if (had_pid || i > 1) name += "." + std::to_string(i + (had_pid ? 1 : 0));
  }
  errno = EEXIST;
  return UniqueFd();
}

// The packet's IP identification. A socket does not report that of received
// packets: it is the one that the ICRC covers.
uint16_t IpIdOf(const ObservedPacket& packet) {
  if (packet.direction == Direction::kTransmitted ||
      packet.disposition == Disposition::kBadIcrc) {
    return packet.segment_index;
  }
  const wire::IcrcFlow flow(packet.source, packet.destination,
                            packet.source_port, wire::kRoceUdpPort);
  return wire::VerifyAnyId(flow, packet.bytes, packet.segment_index,
                           std::nullopt)
      .value_or(packet.segment_index);
}

wire::FrameHeaders HeadersOf(const ObservedPacket& packet) {
  wire::FrameHeaders headers;
  headers.src = packet.source;
  headers.dst = packet.destination;
  headers.src_port = packet.source_port;
  headers.dst_port = wire::kRoceUdpPort;
  headers.tos = packet.traffic_class;
  headers.ttl = packet.hop_limit;
  if (headers.ttl == 0 && packet.direction == Direction::kTransmitted) {
    headers.ttl = wire::kDefaultHopLimit;  // the port's default
  }
  if (headers.src.is_v4()) headers.ip_id = IpIdOf(packet);
  headers.udp_checksum = wire::UdpChecksum(headers, packet.bytes);
  return headers;
}

}  // namespace

std::unique_ptr<Capture> Capture::Begin(const std::string& name,
                                        const Limits& limits) {
  std::string path = name;
  bool is_file;
  UniqueFd fd = OpenNew(&path, &is_file);
  if (!fd.valid()) {
    Warn("cannot capture packets to " + path + ": " + std::strerror(errno) +
         "; the program runs without a capture");
    return nullptr;
  }
  bool had_pid;
  if (path != WithPid(name, &had_pid)) {
    Warn(WithPid(name, &had_pid) + " exists already: the packets of " +
         "process " + std::to_string(::getpid()) + " are in " + path);
  }
  std::unique_ptr<Capture> capture(
      new Capture(std::move(path), std::move(fd), is_file, limits));
  if (!capture->StartWriter()) return nullptr;
  return capture;
}

Capture::Capture(std::string path, UniqueFd fd, bool is_file,
                 const Limits& limits)
    : path_(std::move(path)),
      is_file_(is_file),
      limits_(limits),
      fd_(std::move(fd)) {
  filling_.reserve(limits_.buffer_bytes);
  writing_.reserve(limits_.buffer_bytes);
  const auto header = wire::PcapFileHeader(wire::LinkType::kLinuxSll);
  filling_.assign(header.begin(), header.end());
}

bool Capture::StartWriter() {
  const int error = StartServiceThread(
      &writer_,
      [](void* capture) -> void* {
        ::pthread_setname_np(::pthread_self(), "rxe-user-pcap");
        static_cast<Capture*>(capture)->RunWriter();
        return nullptr;
      },
      this);
  if (error == 0) return true;
  Warn("cannot capture packets to " + path_ + ": " + std::strerror(error) +
       "; the program runs without a capture");
  writer_ = 0;
  return false;
}

Capture::~Capture() {
  if (writer_ == 0) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  filled_.notify_one();
  ::pthread_join(writer_, nullptr);
}

// --- Packets.

void Capture::OnPacket(const ObservedPacket& packet) {
  if (failed_.load(std::memory_order_relaxed)) return;
  const wire::FrameHeaders headers = HeadersOf(packet);
  std::array<uint8_t, kMaxHeaders> before;
  const size_t cooked_at = 16;
  wire::EmitCooked(packet.direction == Direction::kTransmitted,
                   headers.src.is_v4() && headers.dst.is_v4(),
                   before.data() + cooked_at);
  const size_t ip_at = cooked_at + wire::kCookedSize;
  const size_t size = ip_at + wire::EmitIpUdp(headers, packet.bytes.size(),
                                              before.data() + ip_at);
  const size_t frame = size - cooked_at + packet.bytes.size();

  std::unique_lock lock(mutex_);
  if (!HasRoom(size + packet.bytes.size(), &lock)) {
    lock.unlock();
    missed_.fetch_add(1, std::memory_order_relaxed);
    WarnOnceAbout(path_, path_ +
                             " is incomplete: packets arrive faster than it "
                             "can be written");
    return;
  }
  // Under the lock, so that the records are in the order of their times.
  const auto record = wire::PcapRecordHeader(WallClock(), frame);
  std::memcpy(before.data(), record.data(), record.size());
  const bool first = filling_.empty();
  const bool was_full = filling_.size() >= limits_.buffer_bytes / 2;
  filling_.insert(filling_.end(), before.begin(), before.begin() + size);
  filling_.insert(filling_.end(), packet.bytes.begin(), packet.bytes.end());
  const bool is_full = filling_.size() >= limits_.buffer_bytes / 2;
  lock.unlock();
  if (first || is_full != was_full) filled_.notify_one();
}

bool Capture::HasRoom(size_t bytes, std::unique_lock<std::mutex>* lock) {
  const auto has_room = [&] {
    return filling_.size() + bytes <= limits_.buffer_bytes;
  };
  if (has_room()) {
    waited_ = false;
    return true;
  }
  // Waits once, until there is space again, so that a lane is not blocked for
  // long.
  if (waited_) return false;
  waited_ = !written_.wait_for(*lock, limits_.longest_wait, has_room);
  return !waited_;
}

// --- The writer.

void Capture::RunWriter() {
  std::unique_lock lock(mutex_);
  for (;;) {
    filled_.wait(lock, [&] { return !filling_.empty() || ending_; });
    if (filling_.empty()) return;
    filled_.wait_for(lock, limits_.flush_after, [&] {
      return ending_ || flushing_ ||
             filling_.size() >= limits_.buffer_bytes / 2;
    });
    filling_.swap(writing_);
    lock.unlock();
    // The other buffer can be filled while this one is written.
    written_.notify_all();
    const bool good = failed_ || WriteAll(writing_);
    lock.lock();
    writing_.clear();
    if (!good) failed_ = true;
    written_.notify_all();
  }
}

bool Capture::WriteAll(const std::vector<uint8_t>& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n =
        ::write(fd_.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : EIO;
      Warn("cannot write " + path_ + ": " + std::strerror(error) +
           "; no more packets are captured, and the program continues");
      // The file then ends with a whole record.
      if (is_file_ && ::ftruncate(fd_.get(), good_bytes_) != 0) return false;
      return false;
    }
    done += static_cast<size_t>(n);
  }
  good_bytes_ += static_cast<off_t>(bytes.size());
  return true;
}

void Capture::Flush(std::chrono::milliseconds patience) {
  const NoCancellation no_cancellation;
  // The lock's holder may have been interrupted by a handler that exits.
  timespec until;
  ::clock_gettime(CLOCK_REALTIME, &until);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(patience);
  until.tv_sec += seconds.count() + 1;
  if (::pthread_mutex_timedlock(mutex_.native_handle(), &until) != 0) return;
  std::unique_lock lock(mutex_, std::adopt_lock);
  flushing_ = true;
  filled_.notify_one();
  written_.wait_for(lock, patience,
                    [&] { return filling_.empty() && writing_.empty(); });
  flushing_ = false;
}

void Capture::AbandonInChild() {
  failed_ = true;
  fd_.Reset();
  std::vector<uint8_t>().swap(filling_);
  std::vector<uint8_t>().swap(writing_);
  mutex_.unlock();
}

}  // namespace rxe_user
