// Completion counters: ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3),
// ibv_query_comp_cntr_caps(3). They are new in rdma-core 65, so their
// structures are declared here, as in its manual pages.
#include "transport/qp/completion_counter.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "rxe_user/objects/limits.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/symbols.h"

namespace verbs_api {
namespace {

struct InitAttr {
  uint32_t comp_mask;
  uint32_t type;  // of transport::CompletionCounter::Unit
  uint32_t flags;
};
struct AttachAttr {
  uint32_t comp_mask;
  uint32_t op_mask;  // bits by transport::CountedCompletion
};
struct Caps {
  uint64_t max_value;
  uint32_t max_counters;
  uint32_t supported_qp_attach_ops;
};

constexpr uint64_t kMaxValue = std::numeric_limits<uint64_t>::max();

using Unit = transport::CompletionCounter::Unit;

// Calls `f` with the counts of `part`. Returns 0 or EINVAL.
template <typename F>
int WithCounts(CompletionCounterPart* part, F&& f) {
  return ErrnoCall([&]() -> int {
    CompletionCounter* counter = Find(part);
    if (counter == nullptr) return EINVAL;
    f(*counter->counter);
    return 0;
  });
}

}  // namespace

// Copies what fits in the caller's `size` bytes: its header may be older or
// newer than ours. Bytes beyond our structure are zeroed.
NEWER_EXPORT(int, _ibv_query_comp_cntr_caps, ibv_context* ibv, Caps* caps,
             size_t size) {
  return ErrnoCall([&]() -> int {
    if (Find(ibv) == nullptr || caps == nullptr) return EINVAL;
    const Caps ours = {
        .max_value = kMaxValue,
        .max_counters = rxe_user::kMaxObjects,
        .supported_qp_attach_ops = (1u << transport::kCountedCompletions) - 1};
    std::memset(static_cast<void*>(caps), 0, size);
    std::memcpy(static_cast<void*>(caps), &ours, std::min(size, sizeof(ours)));
    return 0;
  });
}

NEWER_EXPORT(CompletionCounterPart*, ibv_create_comp_cntr, ibv_context* ibv,
             InitAttr* attr) {
  return PointerCall([&]() -> CompletionCounterPart* {
    Context* context = Find(ibv);
    if (context == nullptr || attr == nullptr) return Fail(EINVAL);
    if (attr->comp_mask != 0 || attr->flags != 0 ||
        attr->type > static_cast<uint32_t>(Unit::kBytes)) {
      return Fail(ENOTSUP);
    }
    auto counter = std::make_unique<CompletionCounter>();
    counter->context = ibv;
    counter->handle = 0;
    counter->owner = context;
    counter->counter = std::make_shared<transport::CompletionCounter>(
        static_cast<Unit>(attr->type));
    SetLive(counter.get(), true);
    Retain(context);
    return counter.release();
  });
}

NEWER_EXPORT(int, ibv_destroy_comp_cntr, CompletionCounterPart* part) {
  return DestroyCall(part, [](CompletionCounter* counter) -> int {
    // Queue pairs still use the counter.
    if (counter->counter.use_count() > 1) return EBUSY;
    SetLive(counter, false);
    Delete(counter);
    return 0;
  });
}

NEWER_EXPORT(int, ibv_qp_attach_comp_cntr, ibv_qp* ibv,
             CompletionCounterPart* part, AttachAttr* attr) {
  return ErrnoCall([&]() -> int {
    Qp* qp = Find(ibv);
    CompletionCounter* counter = Find(part);
    if (qp == nullptr || counter == nullptr || attr == nullptr ||
        qp->owner != counter->owner) {
      return EINVAL;
    }
    if (attr->comp_mask != 0) return ENOTSUP;
    return qp->pair->AttachCounter(counter->counter, attr->op_mask);
  });
}

NEWER_EXPORT(int, ibv_read_comp_cntr, CompletionCounterPart* part,
             uint64_t* value) {
  if (value == nullptr) return Refuse(EINVAL);
  return WithCounts(part, [&](auto& counts) {
    *value = counts.successes.load(std::memory_order_acquire);
  });
}
NEWER_EXPORT(int, ibv_read_err_comp_cntr, CompletionCounterPart* part,
             uint64_t* value) {
  if (value == nullptr) return Refuse(EINVAL);
  return WithCounts(part, [&](auto& counts) {
    *value = counts.errors.load(std::memory_order_acquire);
  });
}
NEWER_EXPORT(int, ibv_set_comp_cntr, CompletionCounterPart* part,
             uint64_t value) {
  return WithCounts(part, [=](auto& counts) { counts.successes = value; });
}
NEWER_EXPORT(int, ibv_set_err_comp_cntr, CompletionCounterPart* part,
             uint64_t value) {
  return WithCounts(part, [=](auto& counts) { counts.errors = value; });
}
NEWER_EXPORT(int, ibv_inc_comp_cntr, CompletionCounterPart* part,
             uint64_t amount) {
  return WithCounts(part, [=](auto& counts) { counts.successes += amount; });
}
NEWER_EXPORT(int, ibv_inc_err_comp_cntr, CompletionCounterPart* part,
             uint64_t amount) {
  return WithCounts(part, [=](auto& counts) { counts.errors += amount; });
}

}  // namespace verbs_api
