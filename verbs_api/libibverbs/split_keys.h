// Gives each memory region an rkey that is not its lkey (`rxe-user run
// --strict`), as devices do that keep local and remote keys apart. Otherwise
// they are one number here, and a program that mixes them up works.
#ifndef VERBS_API_LIBIBVERBS_SPLIT_KEYS_H_
#define VERBS_API_LIBIBVERBS_SPLIT_KEYS_H_

#include <cstdint>
#include <memory>

#include "rxe_user/memory/region_table.h"
#include "transport/base/memory.h"

namespace verbs_api {

// The rkey of the region with this lkey: the same number unless the lint
// mixed-keys is on.
uint32_t RkeyOf(uint32_t lkey);

// The reverse.
inline uint32_t LkeyOf(uint32_t rkey) { return RkeyOf(rkey); }

// Whether `key` is the rkey of a region and not an lkey. Never, unless the lint
// is on.
bool IsOnlyRkey(rxe_user::RegionTable& regions, uint32_t key);

// Memory in front of `regions` in which remote keys are those of RkeyOf. Keys
// of memory windows and memory keys stay as they are. `device` names the device
// in lint::QpKey. Null unless the lint is on.
std::unique_ptr<transport::Memory> SplitKeys(rxe_user::RegionTable& regions,
                                             const void* device);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_SPLIT_KEYS_H_
