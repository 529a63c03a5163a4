// XRC domains: ibv_open_xrcd(3).
#include <fcntl.h>

#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {

ibv_xrcd* OpenXrcd(ibv_context* ibv, ibv_xrcd_init_attr* attr) {
  return PointerCall([&]() -> ibv_xrcd* {
    Context* context = Find(ibv);
    constexpr uint32_t kRequired =
        IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (context == nullptr || attr == nullptr || attr->comp_mask != kRequired ||
        (attr->oflags & ~(O_CREAT | O_EXCL)) != 0) {
      return Fail(EINVAL);
    }
    auto xrcd = std::make_unique<Xrcd>();
    const bool create = (attr->oflags & O_CREAT) != 0;
    if (const int error = context->device->space().xrc_domains().Open(
            context->device, attr->fd, create,
            create && (attr->oflags & O_EXCL) != 0, &xrcd->domain)) {
      return Fail(error);
    }
    xrcd->context = ibv;
    xrcd->owner = context;
    SetLive(xrcd.get(), true);
    Retain(context);
    return xrcd.release();
  });
}

int CloseXrcd(ibv_xrcd* ibv) {
  return DestroyCall(ibv, [](Xrcd* xrcd) -> int {
    if (xrcd->users > 0) return EBUSY;
    SetLive(xrcd, false);
    Delete(xrcd);
    return 0;
  });
}

}  // namespace verbs_api
