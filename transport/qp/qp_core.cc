#include "transport/qp/qp_core.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/qp/copy_range.h"
#include "transport/qp/qp_type.h"
#include "wire/psn.h"

namespace transport {

namespace {

bool HasReceiveQueue(const QpConfig& config) {
  return config.srq == nullptr &&
         TraitsOf(config.type).receives_from == ReceivesFrom::kOwnQueue;
}

// The receive queue comes first: its size keeps the send queue aligned.
size_t ReceiveSize(const QpConfig& config) {
  return HasReceiveQueue(config)
             ? ReceiveQueue::Size(config.capacity.max_recv_wr,
                                  config.capacity.max_recv_sge)
             : 0;
}

// The completion counter kind of a send work request.
std::optional<CountedCompletion> CompletionOf(CountedAs request) {
  switch (request) {
    case CountedAs::kSend:
      return CountedCompletion::kSend;
    case CountedAs::kWrite:
      return CountedCompletion::kWrite;
    case CountedAs::kRead:
      return CountedCompletion::kRead;
    case CountedAs::kAtomic:
    case CountedAs::kOther:
      break;
  }
  return std::nullopt;
}

}  // namespace

size_t QueueMemorySize(const QpConfig& config) {
  return ReceiveSize(config) + SendQueue::Size(config.capacity);
}

QpCore::QpCore(const QpConfig& config, wire::Transport transport)
    : config(config),
      send_queue(config.capacity,
                 config.queue_memory == nullptr
                     ? nullptr
                     : config.queue_memory + ReceiveSize(config)),
      transport(transport) {
  if (!HasReceiveQueue(config)) return;
  receive_queue = std::make_unique<ReceiveQueue>(
      config.pd, config.capacity.max_recv_wr, config.capacity.max_recv_sge,
      config.queue_memory);
}

void QpCore::Fail(Reason reason, std::optional<QpEvent> event) {
  if (failed) return;
  has_findings = failed = true;
  // A lost completion is always reported.
  failure_event = send_cq_lost ? event.value_or(QpEvent::kFatal) : event;
  NoteFirstError(reason);
}

void QpCore::FailSends(Reason reason) {
  has_findings = sends_failed = true;
  NoteFirstError(reason);
}

void QpCore::Note(RareEventKind kind, Time now, uint64_t psn, uint32_t value) {
  if (const auto counter = TextOf(kind).counter; counter != nullptr) {
    ++(counters.*counter);
  }
  if (config.events == nullptr) return;
  config.events->OnRareEvent(
      {.time = now,
       .qpn = config.qpn,
       .kind = kind,
       .reason = first_error,
       .value = static_cast<uint16_t>(value),
       .psn = static_cast<uint32_t>(psn) & wire::kPsnMask});
}

void QpCore::NoteDrained() { has_findings = sq_drained = true; }

bool QpCore::HasDataError(uint64_t index) const {
  const SendWqe& wqe = send_queue.at(index);
  Memory& memory = *config.memory;
  if (wqe.opcode == SendOpcode::kMemcpy) {
    return memory.HasDataError(wqe.imm_be_or_rkey) ||
           memory.HasDataError(wqe.rkey);
  }
  return std::ranges::any_of(send_queue.sges(index), [&](const Sge& sge) {
    return memory.HasDataError(sge.lkey);
  });
}

WcResult QpCore::ExecuteLocal(const SendWqe& wqe) {
  if (wqe.opcode == SendOpcode::kNop) return {};
  const bool copies = wqe.opcode == SendOpcode::kMemcpy;
  const MemoryStatus status = copies ? Memcpy(wqe) : Rebind(wqe);
  if (status == MemoryStatus::kOk) return {};
  if (copies) return {WcStatus::kLocalProtectionError, LocalReason(status)};
  return {WcStatus::kMwBindError, BindReason(status)};
}

MemoryStatus QpCore::Memcpy(const SendWqe& wqe) {
  const MemoryAccess from = {.key = wqe.imm_be_or_rkey,
                             .pd = config.pd,
                             .qpn = config.qpn,
                             .va = wqe.compare_add,
                             .length = wqe.swap};
  const MemoryAccess to = {.key = wqe.rkey,
                           .pd = config.pd,
                           .qpn = config.qpn,
                           .access = kAccessLocalWrite,
                           .va = wqe.remote_addr,
                           .length = wqe.swap};
  return CopyRange(config.memory, from, to);
}

MemoryStatus QpCore::Rebind(const SendWqe& wqe) {
  if (wqe.opcode == SendOpcode::kBindMw) {
    return config.memory->Bind({.rkey = wqe.rkey,
                                .region_key = wqe.imm_be_or_rkey,
                                .pd = config.pd,
                                .qpn = config.qpn,
                                .access = static_cast<uint32_t>(wqe.swap),
                                .va = wqe.remote_addr,
                                .length = wqe.compare_add});
  }
  if (wqe.opcode == SendOpcode::kConfigureMkey) return ConfigureMkey(wqe);
  return config.memory->Invalidate({.rkey = wqe.imm_be_or_rkey,
                                    .pd = config.pd,
                                    .qpn = config.qpn,
                                    .remote = false});
}

MemoryStatus QpCore::ConfigureMkey(const SendWqe& wqe) {
  // Inline data is not aligned.
  std::array<Sge, kMaxMkeyEntries> list;
  std::array<InterleavedPiece, kMaxMkeyEntries> interleaved;
  const uint8_t* const bytes = send_queue.inline_data(send_queue.head());
  const MkeyConfiguration::Transform change = MkeyTransformOf(wqe.swap);
  const size_t transform =
      change == MkeyConfiguration::Transform::kSet ? kMkeyTransformSize : 0;
  const size_t layout = wqe.length - transform;
  const size_t entries = layout / kMkeyEntrySize;
  MkeyConfiguration configuration = {
      .key = wqe.rkey,
      .pd = config.pd,
      .access = MkeyAccessOf(wqe.swap),
      .layout = MkeyLayoutOf(wqe.swap),
      .repeat_count = static_cast<uint32_t>(wqe.compare_add),
      .change = change,
      .transform = {bytes + layout, transform}};
  switch (configuration.layout) {
    case MkeyConfiguration::Layout::kKeep:
      break;
    case MkeyConfiguration::Layout::kList:
      std::memcpy(list.data(), bytes, layout);
      configuration.list = {list.data(), entries};
      break;
    case MkeyConfiguration::Layout::kInterleaved:
      std::memcpy(interleaved.data(), bytes, layout);
      configuration.interleaved = {interleaved.data(), entries};
      break;
  }
  return config.memory->ConfigureMkey(configuration);
}

bool QpCore::CountSend(CountedAs request, bool success, uint64_t bytes) {
  const auto what = CompletionOf(request);
  return what && CountAttached(*what, success, bytes);
}

bool QpCore::CountAttached(CountedCompletion what, bool success,
                           uint64_t bytes) {
  CompletionCounter* const counter =
      (*completion_counters)[static_cast<size_t>(what)].get();
  if (counter == nullptr) return false;
  if (success) {
    counter->OnSuccess(bytes);
  } else {
    counter->OnError();
  }
  return true;
}

void QpCore::CompleteSend(WcResult result, Time now) {
  const SendWqe& wqe = send_queue.at(send_queue.head());
  const SendOperation& operation = wqe.operation();
  const bool success = result.ok();
  const bool report =
      !success || config.signal_all || (wqe.flags & kSendSignaled) != 0;
  Completion completion;
  completion.wr_id = wqe.wr_id;
  completion.status = result.status;
  completion.reason = result.reason;
  completion.opcode = operation.wc_opcode;
  completion.qpn = config.qpn;
  completion.time = now;
  if (success) {
    ++counters.requests[static_cast<size_t>(operation.counted_as)];
    completion.byte_len = operation.kind == SendKind::kRead
                              ? wqe.length
                              : operation.response_bytes;
  } else {
    ++(result.status == WcStatus::kFlushed ? counters.send_flushes
                                           : counters.send_errors);
  }
  const bool told = completion_counters != nullptr &&
                    CountSend(operation.counted_as, success, wqe.length);
  // The sink may post, so remove this request first.
  send_queue.Pop();
  Outstanding& outstanding = send_queue.outstanding();
  const auto end = static_cast<uint32_t>(send_queue.head());
  if (report && !send_cq_lost) {
    completion.slot = outstanding.SlotBefore(end);
    const uint32_t earlier = outstanding.Report(end);
    if (config.send_cq->Push(completion)) return;
    outstanding.Lost(earlier);
    send_cq_lost = true;
  } else if (told || send_cq_lost) {
    outstanding.Settle(end);
  }
}

}  // namespace transport
