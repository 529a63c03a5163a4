// Gives each memory region an rkey that differs from its lkey (`rxe-user run
// --strict`), as on devices that keep local and remote keys apart. Otherwise
// both are the same number here, and a program that confuses them works.
#ifndef VERBS_API_LIBIBVERBS_SPLIT_KEYS_H_
#define VERBS_API_LIBIBVERBS_SPLIT_KEYS_H_

#include <cstdint>
#include <memory>

#include "rxe_user/memory/region_table.h"
#include "transport/base/memory.h"

namespace verbs_api {

// The rkey of the region with this lkey: the same number, unless the lint
// mixed-keys is on.
uint32_t RkeyOf(uint32_t lkey);

// The reverse.
inline uint32_t LkeyOf(uint32_t rkey) { return RkeyOf(rkey); }

// Whether `key` is the rkey of a region and not an lkey. Always false unless
// the lint is on.
bool IsOnlyRkey(rxe_user::RegionTable& regions, uint32_t key);

// Wraps `regions` in a memory in which remote keys are those of RkeyOf. Keys of
// memory windows and memory keys are unchanged. `device` is the device in
// lint::QpKey. Null unless the lint is on.
std::unique_ptr<transport::Memory> SplitKeys(rxe_user::RegionTable& regions,
                                             const void* device);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_SPLIT_KEYS_H_
