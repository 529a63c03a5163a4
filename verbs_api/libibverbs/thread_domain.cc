// Thread domains: ibv_alloc_td(3).
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {

ibv_td* AllocTd(ibv_context* ibv, ibv_td_init_attr* attr) {
  return PointerCall([&]() -> ibv_td* {
    Context* context = Find(ibv);
    if (context == nullptr || attr == nullptr || attr->comp_mask != 0) {
      return Fail(EINVAL);
    }
    auto td = std::make_unique<Td>();
    td->context = ibv;
    td->owner = context;
    SetLive(td.get(), true);
    Retain(context);
    return td.release();
  });
}

int DeallocTd(ibv_td* ibv) {
  return DestroyCall(ibv, [](Td* td) -> int {
    if (td->users > 0) return EBUSY;
    SetLive(td, false);
    Delete(td);
    return 0;
  });
}

}  // namespace verbs_api
